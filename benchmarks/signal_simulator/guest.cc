#include "benchmarks/signal_simulator/guest.h"

#include <algorithm>
#include <utility>

namespace ringside {

GuestSimulation::GuestSimulation(const Scenario& scenario, Events& events, Ring& ring,
                                 Random& random, std::function<bool()> submitted)
    : scenario_(scenario),
      events_(events),
      ring_(ring),
      random_(random),
      submitted_(std::move(submitted)) {
  for (size_t i = 0; i < scenario.vcpus; ++i) vcpus_.push_back(std::make_unique<Vcpu>(events));
  for (const Job& job : scenario.jobs) {
    jobs_.push_back(std::make_unique<JobThread>(*this, job, jobs_.size()));
  }
  for (const ForeignLoad& load : scenario.foreign) {
    foreign_.push_back(std::make_unique<ForeignThread>(load.for_ns));
  }
}

void GuestSimulation::Start() {
  for (const auto& job : jobs_) {
    job->SetDepth(job->job().depth);
    for (const DepthChange& change : job->job().changes) {
      events_.After(change.at_ns, [job = job.get(), &change] { job->SetDepth(change.depth); });
    }
  }
  for (size_t i = 0; i < foreign_.size(); ++i) StartForeign(*foreign_[i], scenario_.foreign[i]);
  if (scenario_.mischief == Mischief::kMovesEvent) MoveEvent();
  if (scenario_.mischief != Mischief::kDrips) return;
  for (const auto& job : jobs_) job->Drip();
}

void GuestSimulation::StartForeign(ForeignThread& thread, const ForeignLoad& load) {
  events_.After(load.every_ns, [this, &thread, &load] {
    vcpus_[load.vcpu]->Wake(thread);
    StartForeign(thread, load);
  });
}

void GuestSimulation::Interrupt() {
  if (std::exchange(held_, false)) {
    for (const auto& job : jobs_) job->HoldHasEnded();
  }
  // One that is on its way already is the same interrupt.
  if (std::exchange(interrupt_sent_, true)) return;
  events_.After(DeliveryNs(handler_vcpu()), [this] {
    interrupt_sent_ = false;
    handler_.Arrives();
    handler_vcpu().Wake(handler_);
  });
}

bool GuestSimulation::halted() const {
  return std::ranges::all_of(vcpus_, [](const auto& vcpu) { return vcpu->halted(); });
}

int64_t GuestSimulation::busy_ns() const {
  int64_t sum_ns = 0;
  for (const auto& vcpu : vcpus_) sum_ns += vcpu->busy_ns();
  return sum_ns;
}

bool GuestSimulation::Submit(IoId io) {
  ring_.available.push_back(io);
  return submitted_();
}

void GuestSimulation::Held() {
  if (std::exchange(held_, true) || scenario_.mischief != Mischief::kShrinks) return;
  for (const auto& job : jobs_) job->SetDepth(std::max(job->depth(), 2u) - 1);
}

// Away by half of what an index can be, for 10 of each 30 us, and back with a look at what came
// meanwhile, as a driver that enables its callback does.
void GuestSimulation::MoveEvent() {
  constexpr int64_t kAwayNs = 10'000, kBackNs = 20'000;
  events_.After(kBackNs, [this] {
    ring_.used_event = static_cast<uint16_t>(ring_.consumed + 0x8000);
    events_.After(kAwayNs, [this] {
      ring_.used_event = ring_.consumed;
      if (!ring_.answered.empty()) {
        handler_.Arrives();
        handler_vcpu().Wake(handler_);
      }
      MoveEvent();
    });
  });
}

int64_t InterruptHandler::Step() {
  const Scenario& scenario = guest_.scenario_;
  Ring& ring = guest_.ring_;
  if (!entered_) {
    entered_ = true;
    pending_ = false;
    ++runs_;
    return scenario.costs.interrupt_ns;
  }
  if (std::exchange(has_entry_, false)) {
    JobThread& job = *guest_.jobs_[ring.ios[entry_].job];
    job.Finished(entry_);
  }
  if (!ring.answered.empty()) {
    entry_ = ring.answered.front();
    has_entry_ = true;
    ring.answered.pop_front();
    ++ring.consumed;
    if (scenario.rearms_early) ring.used_event = ring.consumed;
    return scenario.costs.entry_ns;
  }
  // Asking and the second look are at one time here, so nothing slips in between.
  ring.used_event = ring.consumed;
  entered_ = false;
  return pending_ ? Step() : kBlocks;
}

}  // namespace ringside
