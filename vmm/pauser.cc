#include "vmm/pauser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace ringside {

void Pauser::Begin(Paused paused) {
  // Moved on: what it holds of its caller's must not end with a lock held here.
  Ask(Until::kResume, [this, paused = std::move(paused)](const absl::Status& status) mutable {
    TellLater(std::move(paused), status);
  });
}

absl::Status Pauser::PauseAndWait(absl::Duration patience, Until until) {
  struct Outcome {
    Event known;
    absl::Status status;
  };
  const auto outcome = std::make_shared<Outcome>();
  const uint64_t id = Ask(until, [outcome](const absl::Status& status) {
    outcome->status = status;
    outcome->known.Notify();
  });
  if (!outcome->known.WaitFor(patience)) {
    const char* const why = GiveUp(id);
    // It may have been paused at the last moment.
    if (!outcome->known.HasBeenNotified()) {
      return absl::DeadlineExceededError(
          absl::StrFormat("the machine was not paused within %s: %s; wait longer, or try again",
                          absl::FormatDuration(patience), why));
    }
  }
  return outcome->status;
}

uint64_t Pauser::Ask(Until until, Answer answer) {
  const MutexLock order(order_);
  uint64_t round;
  uint64_t id;
  {
    const MutexLock lock(mutex_);
    resume_at_drain_ = false;
    if (state_ == State::kPaused) {
      resume_at_release_ = false;
      Reached(until);
      answer(absl::OkStatus());
      return 0;
    }
    if (state_ == State::kEnded) {
      answer(absl::FailedPreconditionError("the machine is over, and cannot be paused"));
      return 0;
    }
    id = ++last_id_;
    waiting_.push_back({id, until, std::move(answer)});
    if (state_ != State::kRunning) return id;
    round = BeginRound();
  }
  TellVcpus(round);
  return id;
}

uint64_t Pauser::BeginRound() {
  state_ = State::kVcpusLeave;
  awaited_ = vcpus_.size();
  return ++round_;
}

void Pauser::TellVcpus(uint64_t round) {
  for (Vcpu* vcpu : vcpus_) vcpu->RequestPause([this, round] { VcpuRests(round); });
}

uint64_t Pauser::Stop() {
  const MutexLock order(order_);
  uint64_t round;
  uint64_t stop;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kEnded) return 0;
    resume_at_drain_ = false;
    if (!std::exchange(stopped_, true)) ++stops_;
    stop = stops_;
    // Otherwise the devices have been told to rest already.
    if (state_ == State::kRunning || state_ == State::kVcpusLeave) must_rest_ = true;
    if (state_ != State::kRunning) return stop;
    round = BeginRound();
  }
  TellVcpus(round);
  return stop;
}

// On the vCPU's thread.
void Pauser::VcpuRests(uint64_t round) {
  const MutexLock order(order_);
  {
    const MutexLock lock(mutex_);
    if (state_ != State::kVcpusLeave || round != round_ || --awaited_ > 0) return;
    state_ = State::kQueuesDrain;
    must_rest_ = false;
    awaited_ = devices_.size() + 1;  // it is over when all have been asked, too
  }
  for (Pausable* device : devices_) device->Pause(device_rests_);
  DeviceRests();
  bool resumes;
  {
    const MutexLock lock(mutex_);
    resumes = std::exchange(resume_at_drain_, false);
  }
  if (resumes) ResumeLocked();
}

// Once for each device that was asked, with a queue's lock held.
void Pauser::DeviceRests() {
  const MutexLock lock(mutex_);
  if (--awaited_ > 0 || state_ != State::kQueuesDrain) return;
  state_ = State::kPaused;
  events_.Put(EventKind::kPaused);
  AnswerAll(absl::OkStatus());
}

void Pauser::Resume() {
  const MutexLock order(order_);
  ResumeLocked();
}

void Pauser::ResumeLocked() {
  State was;
  {
    const MutexLock lock(mutex_);
    was = state_;
    if (was == State::kRunning || was == State::kEnded) return;
    stopped_ = kept_ = false;
    if (must_rest_) {
      resume_at_drain_ = true;
      return;
    }
    if (held_) {
      resume_at_release_ = true;
      return;
    }
    state_ = State::kRunning;
    if (was == State::kPaused) events_.Put(EventKind::kResumed);
    AnswerAll(absl::CancelledError("the machine was resumed before it was paused"));
  }
  if (was != State::kVcpusLeave) {
    for (Pausable* device : devices_) device->Resume();
  }
  for (Vcpu* vcpu : vcpus_) vcpu->Resume();
}

void Pauser::LetGo() {
  const MutexLock order(order_);
  {
    const MutexLock lock(mutex_);
    // Where it is not paused it was resumed meanwhile, and others may be pausing it again.
    if (--to_let_go_ > 0 || kept_ || stopped_ || state_ != State::kPaused) return;
  }
  ResumeLocked();
}

absl::Status Pauser::Hold(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (held_) {
    if (released_.wait_until(mutex_, deadline) == std::cv_status::timeout && held_) {
      return absl::DeadlineExceededError(
          "another call still saves the machine, or exchanges its devices; try again later");
    }
  }
  if (state_ != State::kPaused) {
    return absl::FailedPreconditionError(state_ == State::kEnded
                                             ? "the machine is over"
                                             : "the machine is not paused; pause it first");
  }
  held_ = true;
  return absl::OkStatus();
}

void Pauser::Release() {
  const MutexLock order(order_);
  {
    const MutexLock lock(mutex_);
    held_ = false;
    released_.notify_all();
    if (!std::exchange(resume_at_release_, false)) return;
  }
  ResumeLocked();
}

bool Pauser::AwaitRelease(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (held_) {
    if (released_.wait_until(mutex_, deadline) == std::cv_status::timeout) return !held_;
  }
  return true;
}

void Pauser::Replace(const Pausable& former, Pausable& next) {
  const MutexLock order(order_);
  std::ranges::replace(devices_, &former, &next);
}

const char* Pauser::GiveUp(uint64_t id) {
  const char* why;
  const MutexLock order(order_);
  {
    const MutexLock lock(mutex_);
    why = state_ == State::kVcpusLeave ? "a vCPU is in the middle of an exit"
                                       : "storage has not answered what is in flight";
    const auto given_up = [id](const Waiting& waiting) { return waiting.id == id; };
    if (std::erase_if(waiting_, given_up) == 0 || !waiting_.empty() || stopped_) return why;
  }
  ResumeLocked();
  return why;
}

void Pauser::End() {
  const MutexLock lock(mutex_);
  state_ = State::kEnded;
  AnswerAll(absl::FailedPreconditionError("the machine ended before it was paused"));
}

bool Pauser::paused() const {
  const MutexLock lock(mutex_);
  return state_ == State::kPaused;
}

bool Pauser::ended() const {
  const MutexLock lock(mutex_);
  return state_ == State::kEnded;
}

void Pauser::Reached(Until until) {
  if (until == Until::kResume) {
    kept_ = true;
  } else {
    ++to_let_go_;
  }
}

void Pauser::AnswerAll(const absl::Status& status) {
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    if (status.ok()) Reached(waiting.until);
    waiting.answer(status);
  }
}

void Pauser::Close() {
  const MutexLock lock(told_mutex_);
  closed_ = true;
}

void Pauser::TellLater(Paused paused, const absl::Status& status) {
  const MutexLock lock(told_mutex_);
  if (closed_) return;
  to_tell_.push_back([paused = std::move(paused), status] { paused(status); });
  tells_.Post(tell_);
}

void Pauser::Tell() {
  std::vector<std::function<void()>> all;
  {
    const MutexLock lock(told_mutex_);
    all.swap(to_tell_);
  }
  for (const auto& one : all) one();
}

}  // namespace ringside
