// Drives a policy, the very object that the product runs, through a trace as an I/O thread would
// (poll/wait.cc), and adds up what it costs.
#pragma once

#include <cstdint>

#include "benchmarks/poll_simulator/cost_model.h"
#include "benchmarks/poll_simulator/trace.h"
#include "poll/policy.h"

namespace ringside {

// Sums over waits.
struct Totals {
  uint64_t waits = 0;
  int64_t elapsed_ns = 0;  // waits, latency added and work between them
  int64_t cpu_ns = 0;      // burnt by looking and sleeping, not by work
  int64_t latency_ns = 0;
  uint64_t wake_ups = 0;  // by an event
  uint64_t timer_wake_ups = 0;
  double cost_ns = 0;
  double optimum_ns = 0;         // of the same waits
  double dozing_optimum_ns = 0;  // of the same waits
  // The most by which the cost was ever above twice the optimum, in any one trace. Not a sum.
  double most_above_twice_ns = 0;
};
Totals& operator+=(Totals& sum, const Totals& more);

// `policy` has seen no wait yet; none: sleeps at once.
Totals Replay(const Trace& trace, PollPolicy* policy, const CostModel& model);

}  // namespace ringside
