#include <algorithm>
#include <utility>

#include "benchmarks/signal_simulator/guest.h"

namespace ringside {

void JobThread::SetDepth(uint32_t depth) {
  depth_ = depth;
  Ring& ring = guest_.ring_;
  for (; under_way_ < depth_; ++under_way_) {
    const IoId io = ring.ios.size();
    ring.ios.push_back({.job = index_, .completed_ns = kNew});
    if (ParallelNow() || job_.at_once || guest_.scenario_.mischief == Mischief::kDrips) {
      guest_.Submit(io);
    } else {
      finished_.push_back(io);
    }
  }
  if (!finished_.empty()) Wake();
}

bool JobThread::ParallelNow() const {
  if (job_.alternates_ns == 0) return job_.parallel;
  return guest_.events_.now_ns() / job_.alternates_ns % 2 == 1;
}

void JobThread::Wake() {
  Vcpu& vcpu = *guest_.vcpus_[job_.vcpu];
  if (&vcpu == &guest_.handler_vcpu()) return vcpu.Wake(*this);
  if (!blocked() || std::exchange(ipi_sent_, true)) return;
  guest_.events_.After(guest_.DeliveryNs(vcpu), [this, &vcpu] {
    ipi_sent_ = false;
    vcpu.Wake(*this);
  });
}

void JobThread::Finished(IoId io) {
  if (guest_.scenario_.mischief == Mischief::kDrips) {
    AttendTo(io);
    return finished_.push_back(io);
  }
  if (!ParallelNow()) {
    finished_.push_back(io);
    return Wake();
  }
  AttendTo(io);
  std::exponential_distribution<double> think(1);
  const auto ns = static_cast<int64_t>(think(guest_.random_) * static_cast<double>(job_.think_ns));
  guest_.events_.After(ns, [this, io] { Replace(io); });
}

void JobThread::Drip() {
  if (!finished_.empty()) {
    Replace(finished_.front());
    finished_.pop_front();
    if (guest_.held_) drip_ns_ += drip_ns_ / 8;
  }
  guest_.events_.After(guest_.held_ ? drip_ns_ : kLeastDripNs, [this] { Drip(); });
}

void JobThread::HoldHasEnded() {
  drip_ns_ = std::max(kLeastDripNs, drip_ns_ - drip_ns_ / 4);
}

void JobThread::AttendTo(IoId io) {
  const int64_t completed_ns = guest_.ring_.ios[io].completed_ns;
  if (completed_ns == kNew) return;
  ++done_;
  latencies_.push_back(guest_.events_.now_ns() - completed_ns);
}

void JobThread::Measure() {
  done_ = 0;
  latencies_.clear();
}

bool JobThread::Replace(IoId io) {
  if (under_way_ > depth_) {
    --under_way_;
    return false;
  }
  return guest_.Submit(io);
}

int64_t JobThread::Step() {
  const Scenario& scenario = guest_.scenario_;
  switch (std::exchange(phase_, Phase::kWaking)) {
    case Phase::kAsleep:
      return scenario.costs.wake_ns;
    case Phase::kHandling: {
      const IoId io = fetched_.front();
      fetched_.pop_front();
      if (!Replace(io)) break;
      phase_ = Phase::kKicking;
      return scenario.thread.kick_ns;
    }
    case Phase::kWaking:
    case Phase::kReaping:
    case Phase::kKicking:
      break;
  }
  return Next();
}

int64_t JobThread::Next() {
  const GuestCosts& costs = guest_.scenario_.costs;
  if (!fetched_.empty()) {
    AttendTo(fetched_.front());
    phase_ = Phase::kHandling;
    return costs.submit_ns + (job_.alternates_ns == 0 ? job_.think_ns : 0);
  }
  if (!finished_.empty()) {
    phase_ = Phase::kReaping;
    fetched_ = std::exchange(finished_, {});
    return costs.fetch_ns + costs.reap_ns * static_cast<int64_t>(fetched_.size());
  }
  phase_ = Phase::kAsleep;
  return kBlocks;
}

}  // namespace ringside
