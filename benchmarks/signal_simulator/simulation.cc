#include "benchmarks/signal_simulator/simulation.h"

#include <algorithm>
#include <numeric>

namespace ringside {
namespace {

// All parts of one run.
class Run {
 public:
  Run(const Scenario& scenario, SignallerKind kind, const RunOptions& options, SignalTrace* trace)
      : options_(options),
        random_(options.seed),
        ring_(scenario.first_index),
        device_(scenario, events_, ring_, random_, [this] { thread_.Completed(); }),
        guest_(scenario, events_, ring_, random_, [this] { return thread_.Submitted(); }),
        queue_(events_, ring_, MakeSignaller(kind, options.signaller), trace),
        thread_(scenario, kind == SignallerKind::kBatched,
                {events_, ring_, queue_, guest_, device_}) {}

  RunResult Go() {
    thread_.Start();
    guest_.Start();
    events_.RunUntil(options_.warm_up_ns);
    queue_.Measure();
    thread_.Measure();
    for (const auto& job : guest_.jobs()) job->Measure();
    const int64_t busy_before_ns = guest_.busy_ns();
    const uint64_t runs_before = guest_.handler_runs();
    events_.RunUntil(options_.warm_up_ns + options_.length_ns);
    RunResult result = {.length_ns = options_.length_ns,
                        .interrupts = guest_.handler_runs() - runs_before,
                        .queue = queue_.counts(),
                        .thread = thread_.counts(),
                        .guest_busy_ns = guest_.busy_ns() - busy_before_ns};
    AddJobs(result);
    return result;
  }

 private:
  void AddJobs(RunResult& result) {
    std::vector<int64_t> latencies;
    for (const auto& job : guest_.jobs()) {
      result.done.push_back(job->done());
      latencies.insert(latencies.end(), job->latencies().begin(), job->latencies().end());
    }
    if (latencies.empty()) return;
    std::ranges::sort(latencies);
    result.p50_ns = latencies[latencies.size() / 2];
    result.p99_ns = latencies[latencies.size() * 99 / 100];
  }

  const RunOptions options_;
  Events events_;
  Random random_;
  Ring ring_;
  DeviceSimulation device_;
  GuestSimulation guest_;
  QueueSimulation queue_;
  IoThreadSimulation thread_;
};

}  // namespace

uint64_t RunResult::all_done() const {
  return std::accumulate(done.begin(), done.end(), uint64_t{0});
}

double RunResult::kiops() const {
  return static_cast<double>(all_done()) * 1e6 / static_cast<double>(length_ns);
}

double RunResult::job_kiops(size_t job) const {
  return static_cast<double>(done[job]) * 1e6 / static_cast<double>(length_ns);
}

RunResult Simulate(const Scenario& scenario, SignallerKind kind, const RunOptions& options,
                   SignalTrace* trace) {
  return Run(scenario, kind, options, trace).Go();
}

std::vector<CaseResult> SimulateAll(const std::vector<Scenario>& scenarios,
                                    const std::vector<SignallerKind>& policies,
                                    const RunOptions& options) {
  std::vector<CaseResult> cases;
  for (const Scenario& scenario : scenarios) {
    CaseResult& result = cases.emplace_back(CaseResult{.scenario = scenario});
    for (const SignallerKind kind : policies) {
      result.runs.push_back(Simulate(scenario, kind, options));
    }
  }
  return cases;
}

}  // namespace ringside
