// What sleeping costs an I/O thread, smoothed. A sample counts at most twice what was known, since
// it may hold anything that other threads did meanwhile.
//
// Threads: the I/O thread's own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "poll/policy.h"

namespace ringside {

class SleepMeter {
 public:
  explicit SleepMeter(const SleepCost& first) : cost_(first) {}

  // A timer woke the thread so much too late.
  void Late(int64_t ns) { Smooth(cost_.wake_ns, ns, 8); }
  // The thread ran so long after another began to wake it. Seldom seen, so each counts for more.
  void Kicked(int64_t ns) { Smooth(cost_.kick_ns, ns, 4); }
  // A sleep took so much CPU time.
  void Cpu(int64_t ns) { Smooth(cost_.cpu_ns, ns, 8); }

  const SleepCost& cost() const { return cost_; }

 private:
  static void Smooth(int64_t& known_ns, int64_t sample_ns, int64_t part) {
    constexpr int64_t kLeastNs = 100;  // from which anything can be reached by doubling
    const int64_t most_ns = 2 * std::max(known_ns, kLeastNs);
    known_ns += (std::clamp<int64_t>(sample_ns, 0, most_ns) - known_ns) / part;
  }

  SleepCost cost_;
};

}  // namespace ringside
