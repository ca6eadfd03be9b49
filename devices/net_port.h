// What the queues of a virtio-net device have in common: the device as they see it, and the limits
// of one direction.
//
// Threads: each queue's I/O thread. Ownership: the device has it, and outlives its queues.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "block/throttle_gate.h"
#include "devices/virtio_device.h"
#include "net/host_network.h"

namespace ringside {

// Who hears that the network has gone for good, of one of its queues.
class NetOwner {
 public:
  virtual void NetworkGone(VirtioEvents& events) = 0;

 protected:
  ~NetOwner() = default;
};

struct NetPort {
  // As negotiated: these stay while the device is active.
  bool merges = false;            // a frame may take several receive buffers
  bool leaves_checksums = false;  // the guest computes what is left to it
  // Frames are carried, and not dropped.
  const std::atomic<bool>& link_up;
  DiskThrottle& throttle;
  NetOwner& owner;
};

// Frames are dropped and answered in one turn up to this: a disk on the same thread gets its own.
inline constexpr uint32_t kNetTurnFrames = 16;
inline constexpr uint64_t kNetTurnBytes = 128 << 10;

// Whether a queue may carry its next frame, or when.
class NetGate {
 public:
  // kRead: frames that come in.
  NetGate(DiskThrottle& throttle, ThrottleStats& stats, BlockOp direction)
      : throttle_(throttle), gate_(throttle, stats), direction_(direction) {}
  NetGate(const NetGate& before) = default;
  NetGate& operator=(const NetGate&) = delete;

  // Frames are about to be carried.
  void Begin() {
    const uint32_t version = throttle_.version();
    limits_ = version != 0;
    if (limits_) gate_.Begin(version, MonotonicNs());
  }
  bool Admit(uint64_t bytes) { return !limits_ || gate_.Admit(direction_, bytes); }
  // Of one that was not admitted.
  int64_t ask_again_ns() const { return gate_.ask_again_ns(); }

 private:
  DiskThrottle& throttle_;
  ThrottleGate gate_;
  const BlockOp direction_;
  bool limits_ = false;
};

}  // namespace ringside
