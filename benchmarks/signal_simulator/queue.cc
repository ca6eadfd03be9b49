#include "benchmarks/signal_simulator/queue.h"

#include <algorithm>

namespace ringside {
namespace {

// Publications in a row of which a driver wants not to hear, before nothing is learned of it.
constexpr uint32_t kPolls = 64;

}  // namespace

QueueView QueueSimulation::View() const {
  return {.in_flight = static_cast<uint16_t>(ring_.taken - ring_.used),
          .owed = static_cast<uint16_t>(ring_.used - handed_),
          .now_ns = events_.now_ns()};
}

void QueueSimulation::Record(SignalEventKind kind, uint16_t index) {
  if (trace_ != nullptr) trace_->events.push_back({events_.now_ns(), kind, index});
}

// VIRTIO 1.2, section 2.7.7.2.
bool QueueSimulation::WantsInterrupt() const {
  return static_cast<uint16_t>(ring_.used - ring_.used_event - 1) <
         static_cast<uint16_t>(ring_.used - signalled_);
}

SignalReason QueueSimulation::Judged(SignalReason reason) {
  if (reason == SignalReason::kSilence) at_hand_ = 0;
  // One that goes on may be there to count anew.
  if (!held_ && reason == SignalReason::kHold && View().in_flight == 0 && ring_.available.empty() &&
      at_hand_ == 0) {
    ++counts_.held_for_nobody;
  }
  return reason;
}

void QueueSimulation::Took(uint32_t count) {
  ring_.taken = static_cast<uint16_t>(ring_.taken + count);
  at_hand_ -= std::min(at_hand_, count);
  signaller_->Took(count, events_.now_ns());
  Record(SignalEventKind::kTook, ring_.taken);
}

bool QueueSimulation::Show(std::span<const IoId> ios) {
  for (const IoId io : ios) awaited_ = signaller_->IsAwaited((io + 1) * 4096) || awaited_;
  ring_.answered.insert(ring_.answered.end(), ios.begin(), ios.end());
  ring_.used = static_cast<uint16_t>(ring_.used + ios.size());
  Record(SignalEventKind::kShown, ring_.used);
  if (WantsInterrupt()) return ShownForInterrupt();
  FoundByDriver();
  return false;
}

bool QueueSimulation::ShownForInterrupt() {
  unwanted_ = 0;
  if (IsAlone()) {
    Raise(SignalReason::kDry, /*timed=*/false);
    return true;
  }
  if (held_ && !awaited_) return false;
  const SignalReason reason =
      awaited_ ? SignalReason::kAwaited : Judged(signaller_->Decide(View()));
  if (reason != SignalReason::kHold) {
    Raise(reason);
    return true;
  }
  held_ = true;
  held_since_ns_ = events_.now_ns();
  ++counts_.held;
  Record(SignalEventKind::kHeld, ring_.used);
  return false;
}

bool QueueSimulation::IsAlone() const {
  const QueueView view = View();
  return view.in_flight == 0 && !signaller_->busy() && view.owed == 1;
}

bool QueueSimulation::Look() {
  if (!held_) return false;
  if (!WantsInterrupt()) {
    FoundByDriver();
    return false;
  }
  const SignalReason reason = Judged(signaller_->Look(held_since_ns_, View()));
  if (reason == SignalReason::kHold) return false;
  Raise(reason);
  return true;
}

bool QueueSimulation::Release() {
  if (!held_) return false;
  const bool raise = WantsInterrupt();
  raise ? Raise(SignalReason::kSleep) : FoundByDriver();
  return raise;
}

void QueueSimulation::Raise(SignalReason reason, bool timed) {
  ++counts_.raised;
  ++counts_.reasons[static_cast<size_t>(reason)];
  Record(SignalEventKind::kRaised, ring_.used);
  HandOver(timed);
  EndHold();
}

void QueueSimulation::FoundByDriver() {
  Record(SignalEventKind::kConsumed, ring_.used);
  if (held_) ++counts_.dropped;
  EndHold();
  const bool learns = unwanted_ < kPolls;
  learns ? void(++unwanted_) : signaller_->Forget();
  HandOver(/*timed=*/learns && !signaller_->busy());
}

void QueueSimulation::HandOver(bool timed) {
  signalled_ = ring_.used;
  const uint32_t owed = View().owed;
  handed_ = ring_.used;
  awaited_ = false;
  at_hand_ += owed;
  if (unwanted_ >= kPolls) return;
  signaller_->Handed(owed, timed ? events_.now_ns() : SignalPolicy::kNoTime);
}

void QueueSimulation::EndHold() {
  if (!held_) return;
  counts_ = counts();
  held_ = false;
}

QueueCounts QueueSimulation::counts() const {
  QueueCounts counts = counts_;
  if (held_) {
    counts.longest_hold_ns = std::max(counts.longest_hold_ns, events_.now_ns() - held_since_ns_);
  }
  return counts;
}

}  // namespace ringside
