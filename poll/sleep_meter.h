// What sleeping costs an I/O thread: what lies in the middle of the samples lately, since any one
// of them may hold whatever other threads did meanwhile. A sample only says whether that is higher.
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
  void Late(int64_t ns) {
    Step(cost_.wake_ns, ns, 8);
    // What is seldom measured fades, down to this: a signal interrupts a processor, too.
    cost_.kick_ns = std::max(cost_.kick_ns - cost_.kick_ns / 64, cost_.wake_ns);
  }
  // The thread ran so long after another began to wake it. Seldom seen, so the steps are large.
  void Kicked(int64_t ns) { Step(cost_.kick_ns, ns, 4); }
  // Something came before a timer was due, and the thread ran so long after it was: it took at
  // least that to wake it.
  void AtLeast(Waiting what, int64_t ns) {
    if (ns > cost_.LatencyNs(what)) {
      Step(what == Waiting::kIdle ? cost_.kick_ns : cost_.wake_ns, ns, 4);
    }
  }
  // A sleep took so much CPU time.
  void Cpu(int64_t ns) { Step(cost_.cpu_ns, ns, 8); }

  const SleepCost& cost() const { return cost_; }

 private:
  // A `part` of the way, or all of it if it is less.
  static void Step(int64_t& known_ns, int64_t sample_ns, int64_t part) {
    constexpr int64_t kLeastNs = 100;  // steps of it reach anything
    const int64_t step_ns = std::max(known_ns, kLeastNs) / part;
    known_ns = std::clamp(sample_ns, known_ns - step_ns, known_ns + step_ns);
    known_ns = std::max<int64_t>(known_ns, 0);
  }

  SleepCost cost_;
};

}  // namespace ringside
