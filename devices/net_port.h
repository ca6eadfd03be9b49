// What the queues of a virtio-net device have in common: the device as they see it, and the limits
// of one direction.
//
// Threads: each queue's I/O thread. Ownership: the device has it, and outlives its queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

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
  bool merges = false;    // a frame may take several receive buffers
  uint32_t offloads = 0;  // NetOffload: what frames may leave to the guest
  // Frames are carried, and not dropped.
  const std::atomic<bool>& link_up;
  DiskThrottle& throttle;
  NetOwner& owner;
};

// Frames are dropped and answered in one turn up to this: a disk on the same thread gets its own.
inline constexpr uint32_t kNetTurnFrames = 16;
inline constexpr uint64_t kNetTurnBytes = 128 << 10;

// Whether a queue may carry its next frame, or when.
//
// How long a frame that comes in is nobody knows before it is here. So it is charged when it has
// been delivered, and the next one waits until it is paid for. The gate of a queue that receives is
// the device's for that reason: what is owed stays so when the driver resets the queue.
class NetGate {
 public:
  // kRead: frames that come in.
  NetGate(DiskThrottle& throttle, ThrottleStats& stats, BlockOp direction)
      : throttle_(throttle), gate_(throttle, stats), direction_(direction) {}
  NetGate(const NetGate& before) = default;
  NetGate& operator=(const NetGate&) = delete;

  // Frames are about to be carried: once in a turn, as each call forgets that a wake-up was late.
  void Begin() {
    const bool goes_on = std::exchange(cut_short_, false);
    const uint32_t version = throttle_.version();
    limits_ = version != 0;
    if (!limits_) return;
    if (goes_on) {
      gate_.GoOn(version, MonotonicNs());
    } else {
      gate_.Begin(version, MonotonicNs());
    }
  }
  // The turn ends although there may be more frames, which the next one carries.
  void CutShort() { cut_short_ = true; }
  // No turn follows for a time: the queue pauses, moves or is reset.
  void Interrupt() {
    cut_short_ = false;
    gate_.Interrupt(MonotonicNs());
  }
  bool Admit(uint64_t bytes) {
    const bool admits = !limits_ || gate_.Admit(direction_, bytes);
    owed_bytes_ = admits ? 0 : bytes;
    return admits;
  }
  // Whether the last one that was asked for is admitted, then or by now.
  bool IsPaid() { return owed_bytes_ == 0 || Admit(owed_bytes_); }
  // Of one that was not admitted.
  int64_t ask_again_ns() const { return gate_.ask_again_ns(); }

 private:
  DiskThrottle& throttle_;
  ThrottleGate gate_;
  const BlockOp direction_;
  bool limits_ = false;
  bool cut_short_ = false;
  uint64_t owed_bytes_ = 0;  // of the frame that was not admitted; 0: there is none
};

}  // namespace ringside
