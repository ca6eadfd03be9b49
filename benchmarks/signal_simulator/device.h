// The device behind the I/O thread: when each request is done.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "benchmarks/signal_simulator/events.h"
#include "benchmarks/signal_simulator/ring.h"
#include "benchmarks/signal_simulator/scenario.h"

namespace ringside {

using Random = std::mt19937_64;

class DeviceSimulation {
 public:
  // `completed` is called when there is something to reap. What it is given outlives it.
  DeviceSimulation(const Scenario& scenario, Events& events, Ring& ring, Random& random,
                   std::function<void()> completed)
      : model_(scenario.device),
        spiteful_(scenario.mischief == Mischief::kAfterRaise),
        events_(events),
        ring_(ring),
        random_(random),
        completed_(std::move(completed)) {}

  void Submit(IoId io);
  std::vector<IoId> Reap();
  bool has_completions() const { return !done_.empty(); }
  // The I/O thread has raised an interrupt.
  void Raised();

 private:
  int64_t ServiceNs();
  void Complete(IoId io);

  const DeviceModel model_;
  const bool spiteful_;
  Events& events_;
  Ring& ring_;
  Random& random_;
  const std::function<void()> completed_;
  int64_t free_ns_ = 0;          // when a serial one has nothing left to do
  std::vector<IoId> done_;       // not reaped yet
  std::vector<IoId> kept_back_;  // until the next interrupt is raised
};

}  // namespace ringside
