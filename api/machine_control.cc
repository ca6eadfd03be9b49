#include "api/machine_control.h"

#include <utility>

#include "base/status.h"
#include "vmm/event_json.h"
#include "vmm/json_text.h"
#include "vmm/machine.h"

namespace ringside {

const char* ControlStateName(ControlState state) {
  switch (state) {
    case ControlState::kNotStarted:
      return "not-started";
    case ControlState::kStarting:
      return "starting";
    case ControlState::kRunning:
      return "running";
    case ControlState::kPaused:
      return "paused";
    case ControlState::kEnded:
      return "ended";
  }
  return "?";
}

absl::StatusOr<std::unique_ptr<MachineControl>> MachineControl::Create(MachineOptions options) {
  RINGSIDE_ASSIGN_OR_RETURN(EventFd start_wanted, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd stop_wanted, EventFd::Create());
  return std::unique_ptr<MachineControl>(
      new MachineControl(std::move(options), std::move(start_wanted), std::move(stop_wanted)));
}

MachineControl::MachineControl(MachineOptions options, EventFd start_wanted, EventFd stop_wanted)
    : start_wanted_(std::move(start_wanted)),
      stop_wanted_(std::move(stop_wanted)),
      options_(std::move(options)),
      feed_(std::make_shared<HttpFeed>(kMostWaiting)) {}

std::optional<MachineOptions> MachineControl::TakeStart() {
  const MutexLock lock(mutex_);
  start_wanted_.Clear();
  if (state_ != ControlState::kStarting) return std::nullopt;
  return options_;
}

void MachineControl::Started(Machine& machine) {
  if (const std::optional<MachineEvent> end = BeginEvents()) Happened(*end);
  const MutexLock lock(mutex_);
  machine_ = &machine;
  // What a snapshot has decided.
  const MachineConfig& made = machine.internals().config();
  options_.machine.cpus = made.cpus;
  options_.machine.memory = made.memory;
  options_.machine.pit = made.pit;
  // It may be over already.
  if (state_ != ControlState::kEnded) state_ = ControlState::kRunning;
  if (stop_asked_) machine.Stop();  // while it was being made
  start_status_ = absl::OkStatus();
  ++starts_;
  started_.notify_all();
}

void MachineControl::NotStarted(const absl::Status& why) {
  {
    const MutexLock lock(events_mutex_);
    early_end_.reset();
  }
  const MutexLock lock(mutex_);
  state_ = ControlState::kNotStarted;
  start_status_ = why;
  ++starts_;
  started_.notify_all();
}

void MachineControl::GiveUp() {
  const MutexLock lock(mutex_);
  given_up_ = true;
  started_.notify_all();
}

ControlState MachineControl::state() const {
  const MutexLock lock(mutex_);
  return state_ == ControlState::kRunning && machine_->paused() ? ControlState::kPaused : state_;
}

absl::StatusOr<Machine*> MachineControl::machine() const {
  const MutexLock lock(mutex_);
  if (machine_ != nullptr) return machine_;
  return absl::FailedPreconditionError("the machine has not started yet: call start");
}

MachineOptions MachineControl::options() const {
  const MutexLock lock(mutex_);
  return options_;
}

absl::Status MachineControl::CheckMayChange() const {
  const MutexLock lock(mutex_);
  return MayChange();
}

absl::Status MachineControl::MayChange() const {
  if (state_ == ControlState::kNotStarted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the machine is %s: its configuration can change before it starts",
                      ControlStateName(state_)));
}

absl::Status MachineControl::SetOptions(MachineOptions options) {
  const MutexLock lock(mutex_);
  RINGSIDE_RETURN_IF_ERROR(MayChange());
  options_ = std::move(options);
  return absl::OkStatus();
}

absl::Status MachineControl::Start() {
  const MutexLock lock(mutex_);
  if (state_ != ControlState::kNotStarted || given_up_) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the machine is %s: it starts once", ControlStateName(state_)));
  }
  state_ = ControlState::kStarting;
  const uint64_t before = starts_;
  start_wanted_.Signal();
  while (starts_ == before && !given_up_) started_.wait(mutex_);
  return starts_ > before ? start_status_ : absl::CancelledError("the machine was stopped");
}

void MachineControl::Stop() {
  const MutexLock lock(mutex_);
  if (machine_ != nullptr) {
    machine_->Stop();
  } else {
    stop_asked_ = true;
    stop_wanted_.Signal();
  }
}

void MachineControl::Follow(uint64_t first, HttpAnswer answer) {
  const MutexLock lock(events_mutex_);
  std::string known;
  for (const Line& line : events_) {
    if (static_cast<uint64_t>(line.sequence) >= first) known += line.text;
  }
  std::move(answer).Follow(feed_, "application/x-ndjson", known);
}

std::optional<MachineEvent> MachineControl::BeginEvents() {
  const MutexLock lock(events_mutex_);
  has_begun_ = true;
  return std::exchange(early_end_, std::nullopt);
}

bool MachineControl::Counts(const MachineEvent& event) {
  const MutexLock lock(events_mutex_);
  if (event.kind == EventKind::kStarted) has_begun_ = true;
  if (has_begun_ || event.kind != EventKind::kEnded) return true;
  early_end_ = event;
  return false;
}

void MachineControl::Happened(const MachineEvent& event) {
  if (!Counts(event)) return;
  if (next_sink_ != nullptr) next_sink_->Happened(event);
  if (event.kind == EventKind::kEnded) {
    const MutexLock lock(mutex_);
    state_ = ControlState::kEnded;
  }
  const MutexLock lock(events_mutex_);
  events_.push_back({event.sequence, JsonLine(EventJson(event))});
  if (events_.size() > kEventsKept) events_.pop_front();
  feed_->Publish(events_.back().text);
  if (event.kind == EventKind::kEnded) feed_->End();
}

}  // namespace ringside
