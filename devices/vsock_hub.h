// What the queues of a vsock device have in common: its connections, the host's sockets, and whose
// turn it is to send to the guest.
//
// It works while its receive and its transmit queue are on the same I/O thread, and rests
// otherwise: each of them that comes to a thread says so, and the second one there sets it going;
// one that leaves stops it first. So nothing here needs a lock while data flows, and queues move,
// rest and stop as those of any other device (queue_life.h).
//
// All sockets are in one epoll, which is a source of the I/O thread: a move takes it from thread to
// thread as a whole, and one system call tells of many sockets. Their events come on edges. A
// socket is watched for reading until it has told of data that cannot go to the guest now, and for
// writing only while it has not taken all.
//
// Threads: Arrived, Left and CloseAll on a queue's I/O thread; all else on the one of both.
// Ownership: the device has it; the host's end outlives it.
// Limits: docs/vsock.md.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/segment.h"
#include "base/sync.h"
#include "devices/vsock_client.h"
#include "devices/vsock_reset_notice.h"
#include "net/vsock_host.h"
#include "poll/io_thread.h"

namespace ringside {

struct VirtioVsockConfig {
  std::string name;  // in logs
  uint64_t cid = 0;  // the guest's
  size_t max_connections = 1024;
  bool trace_latency = false;
  Logger log;
};

// A queue as the hub has it.
class VsockQueueSide {
 public:
  // There may be something for it to do that no kick tells of.
  virtual void LookAgain() = 0;

 protected:
  ~VsockQueueSide() = default;
};

class VsockHub {
 public:
  // Ports of the host's end for programs that connect to the guest, in turns. Those below are for
  // the guest to connect to.
  static constexpr uint32_t kFirstOwnPort = 1U << 30;
  static constexpr uint32_t kOwnPorts = 1U << 30;
  // Some have to go before more of the guest's packets are looked at, each of which may need one.
  static constexpr size_t kMaxResets = 256;
  // How many sockets are looked at for one packet, if they have nothing, and how many clients whose
  // time is over go in one turn. The others have the next.
  static constexpr int kLooksPerPacket = 16;
  static constexpr int kExpiredPerTurn = 64;
  // How long a program may take for its line, a guest for its answer, a guest for its RST when both
  // halves have ended, and a program for what the guest has left.
  static constexpr int64_t kGreetingNs = 2'000'000'000;
  static constexpr int64_t kAnswerNs = 2'000'000'000;
  static constexpr int64_t kEndNs = 2'000'000'000;
  static constexpr int64_t kLingerNs = 60'000'000'000;
  // Data has waited so long for credit: the guest is asked again, as it may have read meanwhile and
  // not said so.
  static constexpr int64_t kCreditNs = 50'000'000;
  static constexpr int64_t kCreditAgainNs = 1'000'000'000;
  // Without descriptors connections are taken again after this.
  static constexpr int64_t kAcceptAgainNs = 200'000'000;
  // A restored driver is given no connection before it has handled the event that its own are gone
  // (vsock_reset_notice.h), for so long at most; whether it has is looked at so often.
  static constexpr int64_t kResetNs = 1'000'000'000;
  static constexpr int64_t kResetLookNs = 10'000'000;

  static absl::StatusOr<std::unique_ptr<VsockHub>> Create(VsockHost& host,
                                                          const VirtioVsockConfig& config);
  ~VsockHub();

  enum class Side { kReceive, kTransmit };
  // The queue is attached to its I/O thread, or goes on.
  absl::Status Arrived(Side side, VsockQueueSide& queue, IoThread& io_thread);
  // It is about to leave, or to rest. Also of one that has left.
  void Left(Side side);
  // Of a hub that rests: the driver is gone.
  void CloseAll();

  bool works() const { return io_thread_ != nullptr; }
  VsockResetNotice& reset_notice() { return reset_notice_; }
  // Something is to be sent to the guest.
  bool HasForGuest() const { return !resets_.empty() || !ready_.empty(); }
  // Writes the next packet into a buffer that has room for more than a header. How many bytes it
  // has, header and all; 0: there is none after all, or not found yet.
  uint32_t Fill(std::span<const Segment> buffer);

  bool TakesPackets() const { return resets_.size() < kMaxResets; }
  // A packet of the guest. Whether it was in order. The payload has to stay in place until
  // SendGathered.
  bool Receive(const VsockHeader& header, std::span<const iovec> payload);
  // Sends the data of packets that are not sent yet. Before the guest has any of their chains back.
  void SendGathered();

 private:
  using Ports = VsockConnection::Ports;
  using Wait = VsockClient::Wait;

  // The epoll of all sockets.
  class Sockets final : public Source {
   public:
    Sockets(VsockHub& hub, int fd) : Source(fd), hub_(hub) {}
    bool HasWork() override { return hub_.sockets_told_ || hub_.accepts_; }
    void Run() override { hub_.RunSockets(); }
    void EnableNotify() override {}
    void DisableNotify() override {}
    void Written() override {
      hub_.sockets_told_ = true;
      Source::Written();
    }

   private:
    VsockHub& hub_;
  };

  VsockHub(VsockHost& host, const VirtioVsockConfig& config, UniqueFd epoll, uint64_t secret);

  // vsock_hub.cc: clients, and what they wait for.
  static constexpr char kShortOfDescriptors[] =
      "is short of descriptors: programs that connect wait, the guest is refused; raise 'ulimit "
      "-n'";
  bool HasRoom();
  VsockClient* Add(UniqueFd fd);
  void Remove(VsockClient& client);
  void RemoveAll();
  void SetWait(VsockClient& client, Wait wait);
  int64_t FirstEndNs() const;
  void StartTimer();
  void Expired(int64_t now_ns);
  void ExpiredOne(VsockClient& client);
  void Rest();
  void Update(VsockClient& client);
  void UpdateCredit(VsockClient& client);
  void MakeReady(VsockClient& client);
  // It is over: the guest is told, if it knows of it.
  void Break(VsockClient& client);
  void Reset(const VsockHeader& to);
  void ResetKnown(const Ports& ports);
  void KeepMemory(VsockBacklog& backlog);
  void LogOnce(bool& logged, const char* what);

  // vsock_hub_host.cc: the host's sockets.
  void RunSockets();
  void AcceptSome();
  void AcceptAgain(int64_t in_ns);
  bool HoldsConnections();
  void Event(VsockClient& client, uint32_t events);
  void EventOfJoined(VsockClient& client, uint32_t events);
  void Greet(VsockClient& client);
  void Join(VsockClient& client, uint32_t guest_port);
  bool Opened(VsockClient& client);
  uint32_t NextPort(uint32_t guest_port);
  void Watch(VsockClient& client, uint32_t events);
  void HasRead(VsockClient& client, bool all);
  uint32_t Read(VsockClient& client, std::span<const Segment> buffer);
  void Write(VsockClient& client, std::span<const iovec> payload, uint32_t length);
  void WriteNow(VsockClient& client, std::span<const iovec> payload, uint32_t length);
  void Keep(VsockClient& client, std::span<const iovec> payload, size_t sent);
  void Flush(VsockClient& client);
  void HostTakesNothing(VsockClient& client);
  void AfterFlush(VsockClient& client);
  void Linger(VsockClient& client);

  // vsock_hub_guest.cc: packets.
  uint32_t FillFrom(VsockClient& client, std::span<const Segment> buffer);
  void Put(const VsockHeader& header, std::span<const Segment> buffer) const;
  bool Ask(const VsockHeader& request);
  bool ReceiveFor(VsockClient& client, const VsockHeader& header, std::span<const iovec> payload);

  VsockHost& host_;
  VsockCounts& counts_;
  const std::string name_;
  const uint64_t cid_;
  const size_t max_connections_;
  const Logger log_;
  const UniqueFd epoll_;

  Mutex mutex_;  // held while queues come and go
  struct Place {
    VsockQueueSide* queue = nullptr;  // null: it is nowhere
    IoThread* io_thread = nullptr;
  };
  std::array<Place, 2> places_ ABSL_GUARDED_BY(mutex_);

  // The rest belongs to the I/O thread while it works, and is under the lock otherwise.
  IoThread* io_thread_ = nullptr;  // null: it rests
  VsockQueueSide* receiver_ = nullptr;
  VsockQueueSide* transmitter_ = nullptr;
  int64_t rests_since_ns_ = 0;
  Sockets sockets_;
  bool sockets_told_ = false;    // the epoll may have events
  bool accepts_ = true;          // the listening socket may have connections
  int64_t accept_again_ns_ = 0;  // 0: it was not short of descriptors
  bool in_events_ = false;
  std::vector<std::unique_ptr<VsockClient>> clients_;
  std::vector<std::unique_ptr<VsockClient>> gone_;  // while events may refer to them
  std::vector<VsockBacklog::Memory> spare_;         // of backlogs
  VsockTable table_;
  VsockList<&VsockClient::ready_links> ready_;
  std::array<VsockList<&VsockClient::wait_links>, static_cast<size_t>(Wait::kNothing)> waits_;
  std::deque<VsockHeader> resets_;  // that the guest is to get
  uint32_t next_port_ = kFirstOwnPort;
  bool logged_full_ = false, logged_descriptors_ = false;
  VsockResetNotice reset_notice_;
  int64_t hold_ends_ns_ = 0;  // 0: no connection was held for a restored driver
  VsockPayload parts_;        // of one read
  VsockGathered gathered_;
  int64_t timer_ns_ = 0;  // when the timer ends
  TimerTo<VsockHub, &VsockHub::Expired> timer_{*this};
};

}  // namespace ringside
