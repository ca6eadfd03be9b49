// What a plan costs, for a wait of a known length: latency lost plus price times CPU time burnt, in
// nanoseconds of latency. docs/polling.md has the reasoning.
#pragma once

#include <algorithm>
#include <cstdint>

#include "poll/policy.h"

namespace ringside {

class WaitCost {
 public:
  WaitCost() = default;
  WaitCost(const SleepCost& sleep, Waiting what, double price)
      : price_(price),
        timer_late_ns_(sleep.wake_ns),
        waking_(price * static_cast<double>(sleep.cpu_ns)),
        sleeping_(static_cast<double>(sleep.LatencyNs(what)) + waking_) {}

  // Of being woken by a timer.
  double waking() const { return waking_; }
  // Of a sleep that what was waited for ends.
  double sleeping() const { return sleeping_; }
  // Polling for so long costs as much as that sleep.
  int64_t plain_limit_ns() const { return static_cast<int64_t>(sleeping_ / price_); }
  // From when a timer should wake the thread to when it runs.
  int64_t timer_late_ns() const { return timer_late_ns_; }

  double Polling(int64_t ns) const { return price_ * static_cast<double>(ns); }
  // For one who knows how long the wait will be, and either polls or sleeps.
  double Best(int64_t waited_ns) const { return std::min(Polling(waited_ns), sleeping_); }

  double Of(const WaitPlan& plan, int64_t waited_ns) const {
    if (plan.doze_ns == 0) return OfSpin(plan.spin_ns, waited_ns);
    if (waited_ns <= plan.doze_ns) return sleeping_;
    const int64_t awake_ns = plan.doze_ns + timer_late_ns_;
    if (waited_ns <= awake_ns) return waking_ + static_cast<double>(awake_ns - waited_ns);
    return waking_ + OfSpin(plan.spin_ns, waited_ns - awake_ns);
  }

 private:
  double OfSpin(int64_t spin_ns, int64_t waited_ns) const {
    return waited_ns <= spin_ns ? Polling(waited_ns) : Polling(spin_ns) + sleeping_;
  }

  double price_ = 1;
  int64_t timer_late_ns_ = 0;
  double waking_ = 0;
  double sleeping_ = 0;
};

}  // namespace ringside
