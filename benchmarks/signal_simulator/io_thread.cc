#include "benchmarks/signal_simulator/io_thread.h"

#include <algorithm>
#include <utility>

namespace ringside {

void IoThreadSimulation::After(int64_t ns, void (IoThreadSimulation::*step)()) {
  parts_.events.After(ns, [this, step] { (this->*step)(); });
}

void IoThreadSimulation::Then(bool raise, void (IoThreadSimulation::*step)()) {
  if (!raise) return (this->*step)();
  parts_.events.After(model_.signal_ns, [this, step] {
    parts_.guest.Interrupt();
    parts_.device.Raised();
    (this->*step)();
  });
}

void IoThreadSimulation::Begin() {
  state_ = State::kTurn;
  answers_ = parts_.device.Reap();
  After(model_.request_ns * static_cast<int64_t>(answers_.size()), &IoThreadSimulation::ShowFirst);
}

void IoThreadSimulation::ShowFirst() {
  if (batched_ || answers_.empty()) return Take();
  const bool raise = parts_.queue.Show(answers_);
  if (parts_.queue.held()) parts_.guest.Held();
  answers_.clear();
  Then(raise, &IoThreadSimulation::Take);
}

void IoThreadSimulation::Take() {
  taken_.assign(parts_.ring.available.begin(), parts_.ring.available.end());
  parts_.ring.available.clear();
  const auto count = static_cast<int64_t>(taken_.size());
  if (count > 0) parts_.queue.Took(static_cast<uint32_t>(count));
  After((model_.request_ns + (inline_ ? service_ns_ : 0)) * count, &IoThreadSimulation::LookAtHeld);
}

void IoThreadSimulation::LookAtHeld() {
  Then(parts_.queue.Look(), &IoThreadSimulation::HandOver);
}

void IoThreadSimulation::HandOver() {
  for (const IoId io : std::exchange(taken_, {})) {
    if (!inline_) {
      parts_.device.Submit(io);
      continue;
    }
    parts_.ring.ios[io].completed_ns = parts_.events.now_ns();
    answers_.push_back(io);
  }
  After(batched_ ? kBatchedTurnNs : model_.turn_ns, &IoThreadSimulation::ShowLast);
}

void IoThreadSimulation::ShowLast() {
  if (answers_.empty()) return End();
  const bool raise = parts_.queue.Show(answers_);
  if (parts_.queue.held()) parts_.guest.Held();
  answers_.clear();
  Then(raise, &IoThreadSimulation::End);
}

void IoThreadSimulation::End() {
  if (AnythingToDo()) return Begin();
  Idle();
}

bool IoThreadSimulation::AnythingToDo() {
  return parts_.device.has_completions() || !parts_.ring.available.empty();
}

void IoThreadSimulation::Idle() {
  state_ = State::kPolling;
  ++idles_;
  idle_since_ns_ = parts_.events.now_ns();
  if (parts_.queue.held()) return LookAgain();
  MaybeSleep();
}

// Who holds nothing is told by those who make work for it; what is held is looked after.
void IoThreadSimulation::LookAgain() {
  parts_.events.After(model_.look_ns, [this, idle = idles_] {
    if (idle == idles_ && state_ == State::kPolling) LookNow();
  });
}

void IoThreadSimulation::LookNow() {
  const int64_t waited_ns = parts_.events.now_ns() - idle_since_ns_;
  if (waited_ns > model_.spin_ns) counts_.polled_for_held_ns += model_.look_ns;
  if (parts_.guest.halted()) counts_.idle_guest_ns += model_.look_ns;
  if (AnythingToDo()) return Begin();
  const bool raise = parts_.queue.Look();
  if (parts_.queue.held()) return LookAgain();
  state_ = State::kTurn;
  Then(raise, &IoThreadSimulation::End);
}

void IoThreadSimulation::MaybeSleep() {
  if (model_.spin_ns == INT64_MAX) return;
  parts_.events.After(model_.spin_ns, [this, idle = idles_] {
    if (idle != idles_ || state_ != State::kPolling) return;
    state_ = State::kAsleep;
    ++counts_.sleeps;
  });
}

bool IoThreadSimulation::Submitted() {
  const bool kick = state_ == State::kAsleep;
  Completed();
  return kick;
}

void IoThreadSimulation::Completed() {
  if (state_ != State::kPolling && state_ != State::kAsleep) return;
  const bool asleep = state_ == State::kAsleep;
  ++idles_;
  state_ = State::kWaking;
  After(asleep ? model_.wake_ns : model_.look_ns / 2, &IoThreadSimulation::Begin);
}

}  // namespace ringside
