#include "devices/movable_queue.h"

#include <utility>

#include "base/status.h"

namespace ringside {

BlkPart::~BlkPart() {
  io_thread_.Post(close_);  // behind all other tasks of this
  closed_.Wait();
}

absl::Status BlkPart::OpenChannel() {
  if (channel_ != nullptr) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(channel_, disk_.Open(io_thread_));
  return absl::OkStatus();
}

void BlkPart::CancelHere() {
  if (channel_ != nullptr) channel_->Cancel();
}

void BlkPart::Close() {
  channel_.reset();
  closed_.Notify();
}

BlkPart& MovableQueue::part() const {
  const MutexLock lock(mutex_);
  return *part_;
}

IoThread& MovableQueue::io_thread() const {
  return part().io_thread();
}

// Under the lock, lest a queue that is down goes to another thread and is started there meanwhile:
// its kicks, and queue_ itself, are that thread's then. One that is up or stopping goes nowhere
// during a task of its thread.
uint64_t MovableQueue::TakeKicks(const IoThread& here, const EventFd& kick) {
  const MutexLock lock(mutex_);
  if (&part_->io_thread() != &here) return 0;
  const uint64_t kicks = kick.Clear();
  if (queue_ != nullptr) queue_->Written();
  return kicks;
}

BlkQueue::Parts MovableQueue::PartsOn(BlkPart& part) {
  return {.memory = shared_.memory,
          .io_thread = part.io_thread(),
          .channel = part.channel(),
          .disk = shared_.disk,
          .write_back = shared_.write_back,
          .stats = shared_.stats,
          .events = *events_,
          .idle_hook = idle_hook_,
          .trace = shared_.trace};
}

// Up and down.

void MovableQueue::Start(uint64_t features, const QueueSetup& setup, VirtioEvents& events) {
  features_ = features;
  setup_ = setup;
  events_ = &events;
  const MutexLock lock(mutex_);
  state_ = State::kUp;
  part_->io_thread().Post(start_);
}

void MovableQueue::StartHere() {
  BlkPart& here = part();
  if (const absl::Status status = here.OpenChannel(); !status.ok()) {
    return events_->NeedsReset(Message(status));
  }
  queue_ = std::make_unique<BlkQueue>(PartsOn(here), setup_, features_);
  if (const absl::Status status = here.io_thread().Attach(*queue_, Phase::kSubmit); !status.ok()) {
    queue_ = nullptr;
    events_->NeedsReset(Message(status));
  }
}

void MovableQueue::Stop() {
  const MutexLock lock(mutex_);
  if (state_ != State::kUp) return;
  state_ = State::kStopping;
  part_->io_thread().Post(stop_);
}

void MovableQueue::StopHere() {
  IoThread& io_thread = part().io_thread();
  stopped_ = true;
  if (queue_ != nullptr) {
    io_thread.Detach(*queue_);
    queue_->Stop();
  }
  io_thread.AtPublish(idle_hook_);
}

// What the kernel still reads or writes must stay: whatever is next waits for the last completion.
void MovableQueue::WhenIdle() {
  if (queue_ != nullptr && !queue_->idle()) return;
  if (stopped_) {
    Down();
  } else {
    HandOver();
  }
}

void MovableQueue::Down() {
  queue_ = nullptr;
  stopped_ = false;
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    state_ = State::kDown;
    if (prepared_) {
      part_ = to_;
      done = TakeMove();
    }
  }
  if (done) done(absl::OkStatus());
  owner_.QueueIsDown();
}

// Moving.

void MovableQueue::MoveTo(BlkPart& to, MoveDone done) {
  absl::Status status;
  {
    const MutexLock lock(mutex_);
    if (to_ != nullptr) {
      status = absl::UnavailableError("the queue is moving already; wait until it has arrived");
    } else if (part_ != &to) {
      to_ = &to;
      move_done_ = std::move(done);
      to.io_thread().Post(prepare_);
      return;
    }
  }
  done(status);
}

void MovableQueue::PrepareMove() {
  BlkPart* to;
  {
    const MutexLock lock(mutex_);
    to = to_;
  }
  if (const absl::Status status = to->OpenChannel(); !status.ok()) return EndMove(status);
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    prepared_ = true;
    switch (state_) {
      case State::kUp:
        part_->io_thread().Post(leave_);
        return;
      case State::kStopping:
        return;  // Down ends the move
      case State::kDown:
        part_ = to;
        done = TakeMove();
    }
  }
  done(absl::OkStatus());
}

void MovableQueue::Leave() {
  IoThread& io_thread = part().io_thread();
  if (queue_ != nullptr) {
    io_thread.Detach(*queue_);
    queue_->Leave();
    if (!queue_->idle()) return;  // its last completion queues the hook
  }
  // Behind what it has answered in this turn and not shown yet.
  io_thread.AtPublish(idle_hook_);
}

void MovableQueue::HandOver() {
  const MutexLock lock(mutex_);
  if (state_ == State::kStopping) return;  // StopHere is in this thread's mailbox
  origin_ = std::exchange(part_, to_);
  refused_ = absl::OkStatus();
  part_->io_thread().Post(arrive_);
}

void MovableQueue::Arrive() {
  BlkPart& here = part();
  if (queue_ != nullptr) {
    queue_ = std::make_unique<BlkQueue>(PartsOn(here), *queue_);
    const absl::Status status = here.io_thread().Attach(*queue_, Phase::kSubmit);
    if (!status.ok() && TurnBack(status)) return;
    if (status.ok()) {
      queue_->Resume();
    } else {
      events_->NeedsReset(Message(status));
    }
  }
  EndMove(refused_);
}

// Whether it does, from a thread that could not watch it.
bool MovableQueue::TurnBack(const absl::Status& refused) {
  const MutexLock lock(mutex_);
  // Not if that is here, nor if StopHere is in this thread's mailbox.
  if (part_ == origin_ || state_ == State::kStopping) return false;
  refused_ = refused;
  part_ = origin_;
  part_->io_thread().Post(arrive_);
  return true;
}

void MovableQueue::EndMove(const absl::Status& status) {
  MoveDone done;
  {
    const MutexLock lock(mutex_);
    done = TakeMove();
  }
  done(status);
}

MovableQueue::MoveDone MovableQueue::TakeMove() {
  to_ = nullptr;
  prepared_ = false;
  return std::exchange(move_done_, nullptr);
}

}  // namespace ringside
