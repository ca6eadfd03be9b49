// A job of vsock_job.h on the streams of a vsock.

#ifndef RINGSIDE_TESTS_GUEST_VSOCK_LOAD_H_
#define RINGSIDE_TESTS_GUEST_VSOCK_LOAD_H_

#include <array>
#include <cstdint>

#include "measured_span.h"
#include "vsock_job.h"
#include "vsock_streams.h"

namespace guest {

class VsockLoad final : public VsockUser {
 public:
  VsockLoad(VirtioVsock& vsock, VsockStreams& streams, const VsockJob& job)
      : pair_(vsock.pair()), streams_(streams), job_(job), span_(job.warmup_ns, job.runtime_ns) {}

  // Null if the job was done, else why it could not be.
  const char* Run();
  const VsockResult& result() const { return result_; }

 private:
  // Data that waits for credit to go back.
  struct Held {
    VsockStream* stream;  // null: it is over
    VsockPacket packet;
  };
  // A host that does not read holds up all others when so many of the device's buffers are here:
  // the rest is for packets that tell of credit.
  static constexpr size_t kMostHeld = 192;

  bool Accepts(uint32_t guest_port) override;
  void Opened(VsockStream& stream) override;
  bool Take(VsockStream& stream, const VsockPacket& packet) override;
  void HostEnded(VsockStream& stream) override;
  void Closed(VsockStream& stream) override;

  void RunUntilOver();
  void Turn(uint64_t now);
  const char* OpenSinks();
  void SendOut();
  void AskForCredit();
  void FillSlots();
  bool Echo(VsockStream& stream, const VsockPacket& packet);
  void CountEcho(VsockStream& stream, uint64_t bytes);
  void SendHeld();
  void EndIfDone(VsockStream& stream);
  const char* Order(bool is_over);
  const char* AwaitReport();
  template <typename Condition>
  bool TurnUntil(Condition condition);

  // Nothing takes so long that comes at all, however busy the host is.
  static constexpr uint64_t kPatienceNs = 5'000'000'000;
  static constexpr uint64_t kMostOfATurnNs = 250'000'000;
  // The host may have room and not have said so.
  static constexpr uint64_t kAskNs = 1'000'000;

  VsockPair& pair_;
  VsockStreams& streams_;
  const VsockJob job_;
  MeasuredSpan span_;
  VsockResult result_;
  VsockStream* control_ = nullptr;
  uint32_t report_bytes_ = 0;  // of it that have come
  std::array<VsockStream*, 256> sinks_ = {};
  size_t sink_count_ = 0, next_sink_ = 0;
  uint64_t number_ = 0;       // of the next message out
  uint64_t sent_before_ = 0;  // packets, when the job began
  uint64_t starved_since_ = 0;
  std::array<Held, QueuePair::kMaxSlots> held_ = {};
  size_t held_first_ = 0, held_count_ = 0;
  uint64_t now_ = 0;
  bool ended_ = false;  // by who connects to kVsockEndPort
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VSOCK_LOAD_H_
