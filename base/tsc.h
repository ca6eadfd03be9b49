// The processor's time-stamp counter, for stamps that must cost next to nothing (some 10 ns, no
// system call, no page of the kernel's).
//
// Assumed: an invariant counter, the same on all processors (constant_tsc and nonstop_tsc in
// /proc/cpuinfo), as every host with KVM of the last ten years has.
// Spec: Intel SDM volume 3, section 18.17.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace ringside {

inline uint64_t ReadTsc() {
  return __builtin_ia32_rdtsc();
}

// One moment on both clocks.
struct TscMoment {
  uint64_t ticks = 0;
  int64_t ns = 0;  // CLOCK_MONOTONIC

  static TscMoment Now() {
    // The narrowest of a few: whoever is interrupted between the two clocks has them apart.
    TscMoment best;
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; ++i) {
      const uint64_t before = ReadTsc();
      const int64_t ns = MonotonicNs();
      const uint64_t width = ReadTsc() - before;
      if (width < best_width) best = {.ticks = before + width / 2, .ns = ns};
      if (width < best_width) best_width = width;
    }
    return best;
  }
};

// Turns ticks into CLOCK_MONOTONIC by two moments, best far apart.
class TscScale {
 public:
  TscScale(const TscMoment& first, const TscMoment& last) : first_(first) {
    if (last.ticks != first.ticks) {
      ns_per_tick_ =
          static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks);
    }
  }

  int64_t ToNs(uint64_t ticks) const {
    const auto since = static_cast<double>(static_cast<int64_t>(ticks - first_.ticks));
    return first_.ns + static_cast<int64_t>(since * ns_per_tick_);
  }

 private:
  const TscMoment first_;
  double ns_per_tick_ = 0;
};

// The length of intervals, while they are measured: how fast the counter is becomes known the
// better the longer it runs.
class TscRate {
 public:
  explicit TscRate(const TscMoment& start) : start_(start), next_ticks_(start.ticks) {}

  // Measures anew if the time since the start has doubled since it did, so some forty times in all.
  void Refresh(uint64_t now_ticks) {
    if (now_ticks < next_ticks_) return;
    const TscMoment now = TscMoment::Now();
    const uint64_t ticks = now.ticks - start_.ticks;
    if (ticks == 0) return;
    ns_per_tick_ = static_cast<double>(now.ns - start_.ns) / static_cast<double>(ticks);
    next_ticks_ = now.ticks + ticks;
  }
  // Of an interval that began after the start. 0 before the first measurement.
  uint64_t NsOf(uint64_t ticks) const {
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_per_tick_);
  }

 private:
  const TscMoment start_;
  uint64_t next_ticks_;
  double ns_per_tick_ = 0;
};

// CLOCK_MONOTONIC by the counter: ten instructions instead of sixty, right to a microsecond or so.
// It may step back by that much.
class TscClock {
 public:
  int64_t NowNs() {
    const uint64_t ticks = ReadTsc() - last_.ticks;
    if (ticks >= good_for_ticks_) [[unlikely]]
      return Anew();
    const auto since = static_cast<double>(static_cast<int64_t>(ticks));
    return last_.ns + static_cast<int64_t>(since * ns_per_tick_);
  }
  // The other clock was seen to be there: this one is not behind it.
  void Set(int64_t now_ns) {
    const int64_t behind_ns = now_ns - NowNs();
    if (behind_ns > 0) last_.ns += behind_ns;
  }

 private:
  // For as long again as the rate was measured, and a second or so at most: other clocks are
  // steered.
  [[gnu::noinline]] int64_t Anew() {
    constexpr uint64_t kMostTicks = uint64_t{1} << 31;
    last_ = TscMoment::Now();
    const uint64_t ticks = last_.ticks - first_.ticks;
    ns_per_tick_ = static_cast<double>(last_.ns - first_.ns) / static_cast<double>(ticks);
    good_for_ticks_ = ticks < kMostTicks ? ticks : kMostTicks;
    return last_.ns;
  }

  const TscMoment first_ = TscMoment::Now();
  TscMoment last_ = first_;
  double ns_per_tick_ = 0;
  uint64_t good_for_ticks_ = 0;  // since `last_`
};

}  // namespace ringside
