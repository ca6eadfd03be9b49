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
  return io_thread_ == &io_thread || to_ == &io_thread || (to_ != nullptr && origin_ == &io_thread);
}

QueueWorker::Parts QueueLife::PartsOn(IoThread& io_thread) {
  return {.memory = shared_.memory,
          .io_thread = io_thread,
          .stats = shared_.stats,
          .events = *events_,
          .idle_hook = idle_hook_,
          .trace = shared_.trace};
}

// Up and down.

void QueueLife::Start(uint64_t features, const QueueSetup& setup, VirtioEvents& events) {
  features_ = features;
  setup_ = setup;
  events_ = &events;
  const MutexLock lock(mutex_);
  state_ = State::kUp;
  io_thread_->Post(start_);
}

void QueueLife::StartHere() {
  IoThread& here = io_thread();
  if (const absl::Status status = owner_.Prepare(here); !status.ok()) {
    return events_->NeedsReset(Message(status));
  }
  worker_ = owner_.NewWorker(shared_.index, PartsOn(here), setup_, features_);
  if (const absl::Status status = here.Attach(*worker_, Phase::kTake); !status.ok()) {
    worker_ = nullptr;
    events_->NeedsReset(Message(status));
  }
}

void QueueLife::Stop() {
  const MutexLock lock(mutex_);
  if (state_ != State::kUp) return;
  state_ = State::kStopping;
  io_thread_->Post(stop_);
}

void QueueLife::StopHere() {
  IoThread& here = io_thread();
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
  } else {
    HandOver();
  }
}

void QueueLife::Down() {
  worker_ = nullptr;
  stopped_ = false;
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    state_ = State::kDown;
    if (prepared_) {
      io_thread_ = to_;
      done = TakeMove();
    }
  }
  if (done) done(absl::OkStatus());
  owner_.QueueIsDown();
}

// Moving.

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
    switch (state_) {
      case State::kUp:
        io_thread_->Post(leave_);
        return;
      case State::kStopping:
        return;  // Down ends the move
      case State::kDown:
        io_thread_ = to;
        done = TakeMove();
    }
  }
  done(absl::OkStatus());
}

void QueueLife::Leave() {
  IoThread& here = io_thread();
  if (worker_ != nullptr) {
    here.Detach(*worker_);
    worker_->Leave();
    if (!worker_->idle()) return;  // its last completion queues the hook
  }
  // Behind what it has answered in this turn and not shown yet.
  here.AtPublish(idle_hook_);
}

void QueueLife::HandOver() {
  const MutexLock lock(mutex_);
  if (state_ == State::kStopping) return;  // StopHere is in this thread's mailbox
  origin_ = std::exchange(io_thread_, to_);
  refused_ = absl::OkStatus();
  io_thread_->Post(arrive_);
}

void QueueLife::Arrive() {
  IoThread& here = io_thread();
  if (worker_ != nullptr) {
    worker_ = owner_.NextWorker(shared_.index, PartsOn(here), *worker_);
    const absl::Status status = here.Attach(*worker_, Phase::kTake);
    if (!status.ok() && TurnBack(status)) return;
    if (status.ok()) {
      worker_->Resume();
    } else {
      events_->NeedsReset(Message(status));
    }
  }
  EndMove(refused_);
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

}  // namespace ringside
