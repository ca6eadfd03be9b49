// The last few waits, exactly: whether something comes so regularly that it pays to doze until
// shortly before it. Buckets would be too coarse for that.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "poll/wait_cost.h"

namespace ringside {

class RecentWaits {
 public:
  static constexpr size_t kWaits = 32;

  void Add(int64_t waited_ns) { waits_ns_[added_++ % kWaits] = waited_ns; }

  bool full() const { return added_ >= kWaits; }

  // The doze, and the polling after it, that would have cost least. A plan without a doze if none
  // can be.
  WaitPlan BestDoze(const WaitCost& cost) const {
    std::array<int64_t, kWaits> sorted = waits_ns_;
    std::ranges::sort(sorted);
    WaitPlan best;
    double best_cost = 0;
    for (size_t first = 0; first < kWaits; ++first) {
      const int64_t begin_ns = sorted[first] - MarginNs(sorted[first]);
      const int64_t doze_ns = begin_ns - cost.timer_late_ns();
      if (doze_ns <= cost.timer_late_ns()) continue;  // one could as well poll
      double before = 0;  // what the waits cost that are over when the thread begins to poll
      for (size_t i = 0; i < first; ++i) before += cost.Of({.doze_ns = doze_ns}, sorted[i]);
      double polled = 0;
      for (size_t last = first; last < kWaits; ++last) {
        polled += cost.Polling(sorted[last] - begin_ns);
        const int64_t spin_ns = sorted[last] + MarginNs(sorted[last]) - begin_ns;
        const auto missed = static_cast<double>(kWaits - 1 - last);
        const double all = before + polled + missed * (cost.Polling(spin_ns) + cost.sleeping()) +
                           static_cast<double>(kWaits - first) * cost.waking();
        if (best.doze_ns != 0 && all >= best_cost) continue;
        best_cost = all;
        best = {.doze_ns = doze_ns, .spin_ns = spin_ns};
      }
    }
    return best;
  }

 private:
  // The next wait may lie a little outside.
  static int64_t MarginNs(int64_t waited_ns) { return 500 + waited_ns / 128; }

  std::array<int64_t, kWaits> waits_ns_ = {};
  size_t added_ = 0;
};

}  // namespace ringside
