#include "benchmarks/signal_simulator/device.h"

#include <algorithm>
#include <utility>

namespace ringside {

int64_t DeviceSimulation::ServiceNs() {
  std::uniform_real_distribution<double> deviation(-model_.jitter, model_.jitter);
  return static_cast<int64_t>(static_cast<double>(model_.service_ns) * (1 + deviation(random_)));
}

void DeviceSimulation::Submit(IoId io) {
  int64_t ns = ServiceNs();
  if (model_.kind == DeviceModel::Kind::kSerial) {
    free_ns_ = std::max(free_ns_, events_.now_ns()) + ns;
    ns = free_ns_ - events_.now_ns();
  }
  events_.After(ns, [this, io] { Complete(io); });
}

void DeviceSimulation::Complete(IoId io) {
  // The first of a train is what the interrupt is raised for; the others come when it has been.
  constexpr size_t kMostKeptBack = 16;
  constexpr int64_t kMostKeptBackNs = 50'000;
  if (spiteful_ && io % 2 == 1 && kept_back_.size() < kMostKeptBack) {
    kept_back_.push_back(io);
    // A guest of few requests may have nothing else under way.
    events_.After(kMostKeptBackNs, [this] { Raised(); });
    return;
  }
  ring_.ios[io].completed_ns = events_.now_ns();
  done_.push_back(io);
  completed_();
}

void DeviceSimulation::Raised() {
  constexpr int64_t kJustAfterNs = 100;
  for (const IoId io : std::exchange(kept_back_, {})) {
    events_.After(kJustAfterNs, [this, io] {
      ring_.ios[io].completed_ns = events_.now_ns();
      done_.push_back(io);
      completed_();
    });
  }
}

std::vector<IoId> DeviceSimulation::Reap() {
  return std::exchange(done_, {});
}

}  // namespace ringside
