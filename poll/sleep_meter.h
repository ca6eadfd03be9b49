// What sleeping costs an I/O thread, smoothed: an eighth of each new sample, which counts at most
// twice what was known, since a sample may hold anything that other threads did.
#pragma once

#include <algorithm>
#include <cstdint>

#include "poll/policy.h"

namespace ringside {

class SleepMeter {
 public:
  explicit SleepMeter(const SleepCost& first) : cost_(first) {}

  // A timer woke the thread so much too late.
  void Late(int64_t ns) { Smooth(cost_.wake_ns, ns); }
  // A sleep took so much CPU time.
  void Cpu(int64_t ns) { Smooth(cost_.cpu_ns, ns); }

  const SleepCost& cost() const { return cost_; }

 private:
  static void Smooth(int64_t& known_ns, int64_t sample_ns) {
    constexpr int64_t kLeastNs = 100;  // from which anything can be reached by doubling
    const int64_t most_ns = 2 * std::max(known_ns, kLeastNs);
    known_ns += (std::clamp<int64_t>(sample_ns, 0, most_ns) - known_ns) / 8;
  }

  SleepCost cost_;
};

}  // namespace ringside
