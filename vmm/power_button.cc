#include "vmm/power_button.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace ringside {

void PowerButton::Begin() {
  const MutexLock lock(mutex_);
  state_ = State::kRuns;
}

void PowerButton::End() {
  const MutexLock lock(mutex_);
  state_ = State::kOver;
}

void PowerButton::Stop() {
  std::unique_ptr<Alarm> alarm;  // outlives the lock: its end waits for LimitIsOver
  const MutexLock lock(mutex_);
  alarm.swap(alarm_);
}

absl::Status PowerButton::Press() {
  const MutexLock lock(mutex_);
  RINGSIDE_RETURN_IF_ERROR(CheckRuns());
  PressNow();
  return absl::OkStatus();
}

absl::Status PowerButton::ShutDown(absl::Duration limit) {
  const MutexLock lock(mutex_);
  RINGSIDE_RETURN_IF_ERROR(CheckRuns());
  if (limit != absl::InfiniteDuration()) RINGSIDE_RETURN_IF_ERROR(LimitTo(limit));
  PressNow();
  return absl::OkStatus();
}

void PowerButton::PressNow() {
  parts_.events.Put(EventKind::kPowerOffAsked);
  parts_.interrupt.Signal();
}

absl::Status PowerButton::CheckRuns() const {
  if (state_ == State::kRuns) return absl::OkStatus();
  return absl::FailedPreconditionError(
      state_ == State::kNew ? "the machine has not been started; start it before its power button "
                              "is pressed"
                            : "the machine is over, and has no power button any more");
}

absl::Status PowerButton::LimitTo(absl::Duration limit) {
  constexpr absl::Duration kCentury = absl::Hours(24 * 365 * 100);  // more would overflow the clock
  const absl::Duration clamped = std::clamp(limit, absl::ZeroDuration(), kCentury);
  const int64_t deadline_ns = MonotonicNs() + absl::ToInt64Nanoseconds(clamped);
  if (deadline_ns_ && *deadline_ns_ <= deadline_ns) return absl::OkStatus();
  if (alarm_ == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(alarm_, Alarm::Create(parts_.io_thread, [this] { LimitIsOver(); }));
  }
  deadline_ns_ = deadline_ns;
  alarm_->Set(deadline_ns);
  return absl::OkStatus();
}

void PowerButton::LimitIsOver() {
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kOver) return;
  }
  parts_.log.Log(Severity::kWarning,
                 "the guest has not powered off within its limit: its plug is pulled");
  parts_.pull_plug();
}

}  // namespace ringside
