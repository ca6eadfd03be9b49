// hostile-vsock=NAME. See hostile_vsock.h.

#include <cstring>
#include <new>

#include "allocator.h"
#include "checks.h"
#include "clock.h"
#include "console.h"
#include "deadline.h"
#include "hostile.h"
#include "hostile_vsock.h"
#include "vsock_order.h"
#include "vsock_streams.h"

namespace guest {
namespace {

// A stream to a program of the host that sends back what it gets.
class Mirror final : public VsockUser {
 public:
  Mirror(VirtioVsock& vsock, VsockStreams& streams) : pair_(vsock.pair()), streams_(streams) {}

  bool Works() {
    stream_ = streams_.Connect(kVsockMirrorPort);
    const bool open = TurnUntil([this] { return stream_ == nullptr || stream_->open; });
    if (!open || stream_ == nullptr) return Expect("ordinary stream: it opens", 1, 0);
    uint8_t* const data = streams_.Prepare(*stream_, kBytes);
    if (data == nullptr) return Expect("ordinary stream: there is credit", 1, 0);
    std::memset(data, kByte, kBytes);
    streams_.Send(*stream_, kBytes);
    TurnUntil([this] { return stream_ == nullptr || came_ == kBytes; });
    if (stream_ != nullptr) {
      streams_.Say(*stream_, VsockOp::kShutdown, kVsockNoReceive | kVsockNoSend);
    }
    TurnUntil([this] { return stream_ == nullptr; });
    return Expect("ordinary stream: bytes that came back", kBytes, came_) &
           Expect("ordinary stream: rules broken", 0, streams_.faults());
  }

  bool Accepts(uint32_t) override { return false; }
  void Opened(VsockStream&) override {}
  bool Take(VsockStream&, const VsockPacket& packet) override {
    for (uint32_t i = 0; i < packet.header.length; ++i) came_ += packet.data[i] == kByte;
    return true;
  }
  void HostEnded(VsockStream&) override {}
  void Closed(VsockStream&) override { stream_ = nullptr; }

 private:
  static constexpr uint32_t kBytes = 1000;
  static constexpr uint8_t kByte = 0x5a;

  template <typename Condition>
  bool TurnUntil(Condition condition) {
    return SpinUntil([&] {
      streams_.Turn(*this);
      pair_.Flush();
      return condition();
    });
  }

  VsockPair& pair_;
  VsockStreams& streams_;
  VsockStream* stream_ = nullptr;
  uint64_t came_ = 0;
};

// A device that has come back from a reset does all it did before.
bool Serves(VirtioVsock& vsock) {
  for (const bool event_idx : {true, false}) {
    if (!vsock.Start({.event_idx = event_idx})) return false;
    const uint64_t mark = AllocatorMark();
    auto* const streams = new (AllocateArray<VsockStreams>(1)) VsockStreams(vsock, 64);
    const bool works = Mirror(vsock, *streams).Works();
    ReleaseMemory(mark);
    if (!works) return false;
  }
  return true;
}

}  // namespace

void CheckHostileVsock(std::string_view name, uint64_t seed) {
  VirtioVsock* const vsock = FindVsock();
  if (vsock == nullptr || !InitClock() || !Serves(*vsock)) return;
  bool found = false;
  for (const VsockBehaviour& behaviour : VsockBehaviours()) {
    if (name != "all" && name != behaviour.name) continue;
    found = true;
    HostileVsock target(*vsock, seed);
    const bool ok = vsock->Start({}) && behaviour.run(target);
    SayHarmless(behaviour.name, Serves(*vsock) && ok);
  }
  if (!found) Say("FAIL hostile: expected a name it knows got ", name);
}

}  // namespace guest
