#include "devices/queue_signal.h"

#include <utility>

namespace ringside {
namespace {

// A driver that polls its used ring wants no interrupt for so many publications: nothing is learned
// of it, which costs nothing.
constexpr uint32_t kPolls = 64;

constexpr int64_t kNoTime = SignalPolicy::kNoTime;

using Interrupt = LatencyTrace::Interrupt;

}  // namespace

const char* SignalStepName(SignalStep step) {
  constexpr std::array<const char*, 5> kNames = {"took", "shown", "raised", "held", "consumed"};
  return kNames[static_cast<size_t>(step)];
}

void QueueSignal::Record(SignalStep step, uint16_t index) {
  parts_.records->Add() = {.ns = MonotonicNs(), .step = step, .index = index};
}

void QueueSignal::Shown(bool wanted, LatencyTrace* trace) {
  if (parts_.records != nullptr) Record(SignalStep::kShown, parts_.queue.shown());
  // Of these completions: what ends a hold before they are shown leaves it alone.
  const std::optional<SignalReason> hurry = std::exchange(hurry_, std::nullopt);
  if (wanted) return ShownForInterrupt(hurry, trace);
  FoundByDriver();
  if (trace != nullptr) trace->Finish(Interrupt::kSuppressed);
}

// It looks at the ring without an interrupt, or does so right now.
void QueueSignal::FoundByDriver() {
  if (parts_.records != nullptr) Record(SignalStep::kConsumed, parts_.queue.shown());
  if (held()) {
    // As after a look that found no wish: the index of the last decision does not fall so far
    // behind that it wraps.
    parts_.queue.Signalled();
    parts_.stats.dropped.Add();
    Forget();
  }
  if (unwanted_ < kPolls) {
    ++unwanted_;
  } else {
    policy_.Forget();
  }
  const bool learns = may_hold() && unwanted_ < kPolls;
  HandOver(learns && !policy_.busy() ? MonotonicNs() : kNoTime);
}

void QueueSignal::ShownForInterrupt(std::optional<SignalReason> hurry, LatencyTrace* trace) {
  unwanted_ = 0;
  if (!may_hold() || !parts_.queue.event_idx() || IsAlone()) {
    Raise(SignalReason::kDry, kNoTime);
  } else if (hurry || !held()) {
    const int64_t now_ns = MonotonicNs();
    const SignalReason reason =
        hurry ? *hurry : policy_.Decide(parts_.queue.in_flight(), owed(), now_ns);
    reason == SignalReason::kHold ? BeginHold(now_ns, trace) : Raise(reason, now_ns);
  }
  if (trace != nullptr) trace->Finish(held() ? Interrupt::kHeld : Interrupt::kRaised);
}

// It is answered and signalled without a look at the clock.
bool QueueSignal::IsAlone() const {
  return owed() == 1 && parts_.queue.in_flight() == 0 && !policy_.busy();
}

void QueueSignal::BeginHold(int64_t now_ns, LatencyTrace* trace) {
  held_since_ns_ = now_ns;
  trace_ = trace;
  parts_.stats.held.Add();
  if (parts_.records != nullptr) Record(SignalStep::kHeld, parts_.queue.shown());
  parts_.io_thread.Hold(*this);
}

void QueueSignal::EndHold(int64_t now_ns) {
  parts_.stats.held_ns.Add(static_cast<uint64_t>(now_ns - held_since_ns_));
  parts_.io_thread.Drop(*this);
}

void QueueSignal::Look(int64_t now_ns) {
  if (!parts_.queue.WantsInterrupt()) return FoundByDriver();
  const SignalReason reason =
      policy_.Look(parts_.queue.in_flight() + owed(), held_since_ns_, now_ns);
  if (reason != SignalReason::kHold) Raise(reason, now_ns);
}

void QueueSignal::Release() {
  if (!held()) return;
  if (!parts_.queue.WantsInterrupt()) return FoundByDriver();
  Raise(SignalReason::kSleep, MonotonicNs());
}

void QueueSignal::Drop() {
  if (held()) Forget();
}

void QueueSignal::Forget() {
  if (trace_ != nullptr) trace_->HeldIsDropped();
  EndHold(MonotonicNs());
}

void QueueSignal::Raise(SignalReason reason, int64_t now_ns) {
  parts_.stats.raised[static_cast<size_t>(reason)].Add();
  if (parts_.records != nullptr) Record(SignalStep::kRaised, parts_.queue.shown());
  HandOver(now_ns);
  parts_.queue.Signalled();
  parts_.call.Signal();
  if (!held()) return;
  if (trace_ != nullptr) trace_->HeldIsRaised();
  // The thread has ceased to poll meanwhile, if there is no time.
  EndHold(now_ns != kNoTime ? now_ns : MonotonicNs());
}

// The guest is busy with all that was shown from now on.
void QueueSignal::HandOver(int64_t now_ns) {
  if (may_hold() && unwanted_ < kPolls) policy_.Handed(owed(), now_ns);
  handed_ = parts_.queue.shown();
}

}  // namespace ringside
