// What one queue of a disk with limits has of them: whether its next request may go, or when. Pure
// logic: the queue says what time it is, and asks again when it was told to.
//
// Threads: the queue's I/O thread's. Ownership: the throttle and the statistics outlive it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/counter.h"
#include "block/block_device.h"
#include "block/throttle.h"

namespace ringside {

struct ThrottleStats {
  Counter waited;     // requests that did not fit at once
  Counter waited_ns;  // how long they waited, in all
};

class ThrottleGate {
 public:
  ThrottleGate(DiskThrottle& throttle, ThrottleStats& stats) : throttle_(throttle), stats_(stats) {}
  // Goes on where that of the same queue on another thread has left off.
  ThrottleGate(const ThrottleGate& before) = default;
  ThrottleGate& operator=(const ThrottleGate&) = delete;

  // Requests are about to be asked for, in the order of the ring. `version`: the throttle's.
  void Begin(uint32_t version, int64_t now_ns) {
    now_ = now_ns * kThrottleTicksPerNs;
    from_ = now_;
    if (version != version_) Refresh(version);
  }
  // The same in the middle of what was there at Begin, and soon after: who was late then still is,
  // as what is left has not come any later.
  void GoOn(uint32_t version, int64_t now_ns) {
    const Ticks late = version == version_ ? now_ - from_ : 0;
    const Ticks before = now_;
    Begin(version, now_ns);
    if (now_ - before < kLateTicks) from_ -= late;
  }
  // The queue asks no more for a time, for another reason than its limits: what waits has not
  // waited since then, and nothing comes due meanwhile. Begin ends it.
  void Interrupt(int64_t now_ns);
  // Whether the next one may go. If not, it is asked for again at ask_again_ns().
  bool Admit(BlockOp op, uint64_t bytes);
  int64_t ask_again_ns() const;

 private:
  using Ticks = int64_t;
  // Nothing is paid for later, but for one request: 4.5 years.
  static constexpr Ticks kFarTicks = int64_t{1} << 61;
  // Who looks so late is given at once what came due meanwhile: else each late wake-up would lower
  // the rate.
  static constexpr Ticks kLateTicks = int64_t{100'000'000} * kThrottleTicksPerNs;
  // So often one who waits looks whether the limits have changed.
  static constexpr int64_t kLookNs = 100'000'000;

  bool MayGoNow(BlockOp op, uint64_t bytes);
  bool BeginToWait(BlockOp op, uint64_t bytes);
  void Refresh(uint32_t version);

  DiskThrottle& throttle_;
  ThrottleStats& stats_;
  uint32_t version_ = 0;  // of the throttle, when these were its rates; 0 while interrupted
  uint32_t interrupted_version_ = 0;  // before; 0: it is not, or nothing waits
  ThrottleRates rates_;
  Ticks now_ = 0;   // of Begin
  Ticks from_ = 0;  // when the next one is taken to have come
  Ticks fits_ = 0;  // when the last one did
  // Of the one that waits.
  bool waits_ = false;
  BlockOp charged_op_ = BlockOp::kRead;
  uint64_t charged_bytes_ = 0;
  Ticks since_ = 0;
};

}  // namespace ringside
