// One scenario with one way of signalling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/signal_simulator/io_thread.h"
#include "benchmarks/signal_simulator/queue.h"
#include "benchmarks/signal_simulator/scenario.h"
#include "benchmarks/signal_simulator/signaller.h"

namespace ringside {

struct RunOptions {
  int64_t length_ns = 60'000'000;
  int64_t warm_up_ns = 15'000'000;  // before that, and not measured
  uint64_t seed = 1;
  SignallerSettings signaller;
};

struct RunResult {
  int64_t length_ns = 0;
  std::vector<uint64_t> done;  // requests, by job
  uint64_t interrupts = 0;     // that the guest's handler ran for
  QueueCounts queue;
  ThreadCounts thread;
  int64_t guest_busy_ns = 0;
  int64_t p50_ns = 0, p99_ns = 0;  // from the device's completion until somebody attends to it

  uint64_t all_done() const;
  double kiops() const;
  double job_kiops(size_t job) const;
};

// A scenario and what came of it, in the order of the policies.
struct CaseResult {
  Scenario scenario;
  std::vector<RunResult> runs;
};

// `trace`: null if nobody wants it.
RunResult Simulate(const Scenario& scenario, SignallerKind kind, const RunOptions& options,
                   SignalTrace* trace = nullptr);
std::vector<CaseResult> SimulateAll(const std::vector<Scenario>& scenarios,
                                    const std::vector<SignallerKind>& policies,
                                    const RunOptions& options);

}  // namespace ringside
