#include "benchmarks/signal_simulator/queue.h"

#include <algorithm>
#include <utility>

namespace ringside {

QueueView QueueSimulation::View() const {
  return {.used_event = ring_.used_event,
          .shown = ring_.used,
          .taken = ring_.taken,
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

void QueueSimulation::Tell(uint16_t index) {
  const auto more = static_cast<int16_t>(index - told_);
  if (more <= 0) return;
  told_ = index;
  at_hand_ += static_cast<uint32_t>(more);
}

void QueueSimulation::Judge(SignalReason reason) {
  if (reason == SignalReason::kSilence) at_hand_ = 0;
  if (reason != SignalReason::kHold) return;
  if (View().in_flight() == 0 && ring_.available.empty() && at_hand_ == 0) {
    ++counts_.held_for_nobody;
  }
}

void QueueSimulation::Took(size_t count) {
  ring_.taken = static_cast<uint16_t>(ring_.taken + count);
  at_hand_ -= std::min(at_hand_, static_cast<uint32_t>(count));
  signaller_->Took(count, View());
  Record(SignalEventKind::kTook, ring_.taken);
}

bool QueueSimulation::Show(std::span<const IoId> ios) {
  ring_.answered.insert(ring_.answered.end(), ios.begin(), ios.end());
  ring_.used = static_cast<uint16_t>(ring_.used + ios.size());
  Record(SignalEventKind::kShown, ring_.used);
  if (!WantsInterrupt()) {
    signalled_ = ring_.used;
    // It looks by itself. Of a held one, Look says so.
    if (!held_) {
      Tell(ring_.used);
      signaller_->Consumed(View());
    }
    return false;
  }
  if (held_) return false;
  Tell(ring_.used_event);
  const SignalReason reason = signaller_->Decide(View());
  Judge(reason);
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

bool QueueSimulation::Due() {
  if (!held_) return false;
  if (!WantsInterrupt()) return true;
  return signaller_->Look(held_since_ns_, View()) != SignalReason::kHold;
}

bool QueueSimulation::Look() {
  if (!held_) return false;
  if (!WantsInterrupt()) {
    Unneeded();
    return false;
  }
  Tell(ring_.used_event);
  const SignalReason reason = signaller_->Look(held_since_ns_, View());
  Judge(reason);
  if (reason == SignalReason::kHold) return false;
  Raise(reason);
  return true;
}

bool QueueSimulation::Release() {
  if (!held_) return false;
  if (!WantsInterrupt()) {
    Unneeded();
    return false;
  }
  Raise(SignalReason::kUrgent);
  return true;
}

void QueueSimulation::Raise(SignalReason reason) {
  EndHold();
  ++counts_.raised;
  ++counts_.reasons[static_cast<size_t>(reason)];
  signalled_ = ring_.used;
  Tell(ring_.used);
  signaller_->Raised(View());
  Record(SignalEventKind::kRaised, ring_.used);
}

void QueueSimulation::Unneeded() {
  EndHold();
  ++counts_.spared;
  signalled_ = ring_.used;
  Tell(ring_.used);
  signaller_->Consumed(View());
  Record(SignalEventKind::kConsumed, ring_.used);
}

void QueueSimulation::EndHold() {
  if (!std::exchange(held_, false)) return;
  counts_.longest_hold_ns = std::max(counts_.longest_hold_ns, events_.now_ns() - held_since_ns_);
}

}  // namespace ringside
