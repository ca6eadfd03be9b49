#include "devices/queue_life.h"

#include <utility>

#include "base/status.h"

namespace ringside {

IoThread& QueueLife::io_thread() const {
  const MutexLock lock(mutex_);
  return *io_thread_;
}

bool QueueLife::Needs(const IoThread& io_thread) const {
  const MutexLock lock(mutex_);
  return io_thread_ == &io_thread || worker_on_ == &io_thread || to_ == &io_thread ||
         (step_ == Step::kArriving && origin_ == &io_thread);
}

QueueWorker::Parts QueueLife::PartsOn(IoThread& io_thread) {
  return {.memory = shared_.memory,
          .io_thread = io_thread,
          .stats = shared_.stats,
          .events = *events_,
          .idle_hook = idle_hook_,
          .trace = trace_.get(),
          .signals = signals_.get()};
}

// Up and down.

void QueueLife::Start(uint64_t features, const QueueSetup& setup, VirtioEvents& events) {
  features_ = features;
  setup_ = setup;
  events_ = &events;
  const MutexLock lock(mutex_);
  state_ = State::kUp;
  start_is_held_ = paused_;
  step_ = paused_ ? Step::kResting : Step::kServing;
  if (!paused_) io_thread_->Post(start_);
}

void QueueLife::StartHere() {
  IoThread& here = io_thread();
  if (const absl::Status status = owner_.Prepare(here); !status.ok()) {
    return events_->NeedsReset(Message(status));
  }
  SetWorker(owner_.NewWorker(shared_.index, PartsOn(here), setup_, features_));
  if (const absl::Status status = here.Attach(*worker_, Phase::kTake); !status.ok()) {
    SetWorker(nullptr);
    return events_->NeedsReset(Message(status));
  }
  worker_->Resume();
}

void QueueLife::SetWorker(std::unique_ptr<QueueWorker> worker) {
  const MutexLock lock(mutex_);  // who looks may be on another thread
  if (worker_ != nullptr) explained_ = worker_->ExplainSignals();
  worker_.swap(worker);
  worker_on_ = worker_ != nullptr ? &worker_->io_thread() : nullptr;
}

void QueueLife::Stop() {
  const MutexLock lock(mutex_);
  if (state_ != State::kUp) return;
  state_ = State::kStopping;
  start_is_held_ = false;
  // One that rests and was moved has its worker where it was.
  const bool stays = step_ == Step::kResting && worker_on_ != nullptr;
  (stays ? worker_on_ : io_thread_)->Post(stop_);
}

void QueueLife::StopHere() {
  IoThread& here = worker_ != nullptr ? worker_->io_thread() : io_thread();
  stopped_ = true;
  if (worker_ != nullptr) {
    here.Detach(*worker_);
    worker_->Stop();
  }
  here.AtPublish(idle_hook_);
}

// What the kernel still reads or writes must stay: whatever is next waits for the last completion.
void QueueLife::WhenIdle() {
  if (worker_ != nullptr && !worker_->idle()) return;
  if (stopped_) {
    Down();
  } else if (has_left_) {  // it may have been called back in this very turn
    Left();
  }
}

void QueueLife::Down() {
  SetWorker(nullptr);
  stopped_ = has_left_ = false;
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    state_ = State::kDown;
    step_ = Step::kServing;  // it may have been on its way from a thread that needs it no more
    ReportRest();
    if (prepared_) {
      io_thread_ = to_;
      done = TakeMove();
    }
  }
  if (done) done(absl::OkStatus());
  owner_.QueueIsDown();
}

// Leaving a thread, for another or for a rest.

void QueueLife::BeginToLeave() {
  step_ = Step::kLeaving;
  io_thread_->Post(leave_);
}

void QueueLife::Leave() {
  IoThread& here = io_thread();
  has_left_ = true;
  if (worker_ != nullptr) {
    bool moves;
    {
      const MutexLock lock(mutex_);
      moves = prepared_;
    }
    here.Detach(*worker_);
    moves ? worker_->Leave() : worker_->Drain();
    if (!worker_->idle()) return;  // it queues the hook once it is
  }
  here.AtPublish(idle_hook_);
}

void QueueLife::Left() {
  const MutexLock lock(mutex_);
  // StopHere is in this thread's mailbox, or it was called back: Arrive is.
  if (state_ == State::kStopping || step_ != Step::kLeaving) return;
  if (prepared_) {
    // Before any rest, as what was recalled is not at its end.
    handed_over_ = true;
    return BeginToArrive(*to_);
  }
  step_ = Step::kResting;
  ReportRest();
}

void QueueLife::BeginToArrive(IoThread& at) {
  step_ = Step::kArriving;
  origin_ = worker_on_ != nullptr ? worker_on_ : io_thread_;
  io_thread_ = &at;
  refused_ = absl::OkStatus();
  io_thread_->Post(arrive_);
}

void QueueLife::Arrive() {
  IoThread& here = io_thread();
  has_left_ = false;
  if (worker_ != nullptr) {
    bool renews;
    {
      const MutexLock lock(mutex_);
      renews = std::exchange(renews_, false);
    }
    if (&worker_->io_thread() == &here && !renews) {
      worker_->GoOn();
    } else {
      SetWorker(owner_.NextWorker(shared_.index, PartsOn(here), *worker_));
    }
    const absl::Status status = here.Attach(*worker_, Phase::kTake);
    if (!status.ok() && TurnBack(status)) return;
    if (status.ok()) {
      worker_->Resume();
    } else {
      events_->NeedsReset(Message(status));
    }
  }
  EndArrival();
}

// Whether it does, from a thread that could not watch it.
bool QueueLife::TurnBack(const absl::Status& refused) {
  const MutexLock lock(mutex_);
  // Not if that is here, nor if StopHere is in this thread's mailbox.
  if (io_thread_ == origin_ || state_ == State::kStopping) return false;
  refused_ = refused;
  io_thread_ = origin_;
  io_thread_->Post(arrive_);
  return true;
}

void QueueLife::EndArrival() {
  MoveDone done;
  bool leaves = false;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(handed_over_, false)) done = TakeMove();
    if (state_ == State::kUp) {
      // What came meanwhile: a rest, or a move that was prepared.
      leaves = paused_ || prepared_;
      step_ = leaves ? Step::kLeaving : Step::kServing;
    }
  }
  if (done) done(refused_);
  if (leaves) Leave();
}

// Moving.

void QueueLife::Place(IoThread& io_thread) {
  const MutexLock lock(mutex_);
  io_thread_ = &io_thread;
}

// Who looks comes on io_thread(). Where a queue rests that was moved meanwhile the worker is
// elsewhere, and may end there: so under the lock.
std::unique_ptr<LatencyTrace> QueueLife::SetTrace(std::unique_ptr<LatencyTrace> trace) {
  const MutexLock lock(mutex_);
  trace_.swap(trace);
  if (worker_ != nullptr) worker_->SetTrace(trace_.get());
  return trace;
}

SignalExplanation QueueLife::ExplainSignals() const {
  const MutexLock lock(mutex_);
  return worker_ != nullptr ? worker_->ExplainSignals() : explained_;
}

void QueueLife::MoveTo(IoThread& to, MoveDone done) {
  absl::Status status;
  {
    const MutexLock lock(mutex_);
    if (to_ != nullptr) {
      status = absl::UnavailableError("the queue is moving already; wait until it has arrived");
    } else if (io_thread_ != &to) {
      to_ = &to;
      move_done_ = std::move(done);
      to.Post(prepare_);
      return;
    }
  }
  done(status);
}

void QueueLife::PrepareMove() {
  IoThread* to;
  {
    const MutexLock lock(mutex_);
    to = to_;
  }
  if (const absl::Status status = owner_.Prepare(*to); !status.ok()) return EndMove(status);
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    prepared_ = true;
    if (state_ == State::kStopping) return;  // Down ends the move
    if (state_ == State::kUp && step_ != Step::kResting) {
      if (step_ == Step::kServing) BeginToLeave();
      return;  // otherwise Left or EndArrival goes on with it
    }
    io_thread_ = to;
    done = TakeMove();
  }
  done(absl::OkStatus());
}

void QueueLife::EndMove(const absl::Status& status) {
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    done = TakeMove();
  }
  done(status);
}

QueueLife::MoveDone QueueLife::TakeMove() {
  to_ = nullptr;
  prepared_ = false;
  return std::exchange(move_done_, nullptr);
}

// Resting.

void QueueLife::Pause() {
  const MutexLock lock(mutex_);
  paused_ = rest_awaited_ = true;
  if (state_ == State::kDown) return ReportRest();
  // One that leaves already, arrives or stops comes to it by itself.
  if (state_ == State::kUp && step_ == Step::kServing) BeginToLeave();
}

void QueueLife::Resume() {
  const MutexLock lock(mutex_);
  paused_ = false;
  ReportRest();
  if (state_ != State::kUp) return;
  if (std::exchange(start_is_held_, false)) {
    step_ = Step::kServing;
    io_thread_->Post(start_);
  } else if (step_ == Step::kResting || (step_ == Step::kLeaving && !prepared_)) {
    BeginToArrive(*io_thread_);  // behind Leave, if that has not run yet
  }
}

void QueueLife::ReportRest() {
  if (std::exchange(rest_awaited_, false)) owner_.QueueRests();
}

void QueueLife::Renew() {
  const MutexLock lock(mutex_);
  renews_ = worker_on_ != nullptr;
}

uint16_t QueueLife::position() const {
  const MutexLock lock(mutex_);
  return worker_ != nullptr ? worker_->position() : setup_.next;
}

}  // namespace ringside
