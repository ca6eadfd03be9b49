#include "poll/io_thread.h"

#include <bit>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"

namespace ringside {

const char* SignallingName(Signalling signalling) {
  return signalling == Signalling::kEarly ? "early" : "batched";
}

absl::StatusOr<std::unique_ptr<IoThread>> IoThread::Start(const std::string& name, Waiter waiter,
                                                          const IoThreadTuning& tuning) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot create an epoll", "raise 'ulimit -n'");
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.fd(), &event) != 0) {
    return ErrnoError(errno, "cannot watch an eventfd");
  }
  std::unique_ptr<IoThread> io_thread(new IoThread(std::move(epoll), std::move(wake), tuning));
  IoThread* const self = io_thread.get();
  if (waiter == Waiter::kEpoll) {
    RINGSIDE_ASSIGN_OR_RETURN(self->thread_, StartThread(name, [self] { self->Loop(); }));
    return io_thread;
  }
  // A ring belongs to the thread that creates it.
  absl::Status ring_status;
  Event has_ring;
  RINGSIDE_ASSIGN_OR_RETURN(self->thread_, StartThread(name, [self, &ring_status, &has_ring] {
                              ring_status = self->StartUring();
                              const bool ok = ring_status.ok();
                              has_ring.Notify();  // the caller's variables are gone after this
                              if (ok) self->Loop();
                            }));
  has_ring.Wait();
  if (!ring_status.ok()) {
    self->thread_.join();
    return ring_status;
  }
  return io_thread;
}

absl::Status IoThread::StartUring() {
  RINGSIDE_ASSIGN_OR_RETURN(uring_, Uring::Create());
  uring_->Watch(epoll_.get(), &epoll_listener_);
  return absl::OkStatus();
}

IoThread::IoThread(UniqueFd epoll, EventFd wake, const IoThreadTuning& tuning)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      signalling_(tuning.signalling),
      policy_(PollPolicy::Create(tuning.poll)),
      wait_trace_(tuning.trace_waits ? std::make_unique<WaitTrace>(kTracedWaits) : nullptr) {}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  TaskOf stop([this] { stop_ = true; });
  Post(stop);
  thread_.join();
}

void IoThread::Post(Task& task) {
  if (task.queued_.exchange(true, std::memory_order_acq_rel)) return;
  Task* head = mailbox_.load(std::memory_order_relaxed);
  do {
    task.next_ = head;
    // seq_cst, as are the load below and both accesses in Sleep: in their single order either this
    // push comes before Sleep's look at the mailbox, or Sleep's store comes before this look at
    // sleeping_. So a task is seen or the thread is woken, never neither.
  } while (!mailbox_.compare_exchange_weak(head, &task, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  kicked_ns_.store(MonotonicNs(), std::memory_order_relaxed);  // a measurement, so it may be missed
  wake_.Signal();
}

void IoThread::Loop() {
  StartPolicy();
  // Tasks posted before the stop are older than it in the mailbox, so they have run by then.
  while (!stop_) {
    stats_.turns.Add();
    if (uring_ != nullptr && uring_->Reap()) ready_ |= kCompletionRing;
    RunSources(Phase::kComplete);
    RunPosted();
    RunAlwaysReady();
    const bool published = signalling_ == Signalling::kEarly && publish_hooks_.Run();
    RunSources(Phase::kSubmit);
    submit_hooks_.Run();
    if (signalling_ == Signalling::kBatched && uring_ != nullptr) uring_->Submit();
    if (!published) publish_hooks_.Run();
    if (!stop_) WaitForWork();
  }
}

void IoThread::RunSources(Phase phase) {
  // Looking costs some 15 instructions a source and turn; a kick, with the guest's exit and the
  // completion of the watch, some 15,000. So who has been silent for that many looks is asked to
  // kick: whatever comes, that costs at most twice the best there could have been.
  constexpr uint64_t kSilentTurns = 1024;
  const uint64_t turn = stats_.turns.Get();
  // Whatever a source detaches, itself included, the loop goes on with what is still there.
  for (Source* source = sources_[static_cast<int>(phase)]; source != nullptr;
       source = next_source_) {
    next_source_ = source->next_;
    if (!source->HasWork()) {
      if (turn - source->last_work_turn_ > kSilentTurns) Park(*source);
      continue;
    }
    source->last_work_turn_ = turn;
    ready_ |= source->ready_bit_;
    Quiet(*source);
    source->Run();
  }
}

bool IoThread::IsShared(const Source* one) const {
  constexpr uint64_t kLately = 256;  // turns
  const uint64_t turn = stats_.turns.Get();
  const Source* source = sources_[static_cast<int>(Phase::kSubmit)];
  for (; source != nullptr; source = source->next_) {
    if (source != one && turn - source->last_work_turn_ < kLately) return true;
  }
  return false;
}

absl::Status IoThread::Attach(Source& source, Phase phase) {
  if (uring_ != nullptr) {
    uring_->Watch(source.wake_fd_, &source);
  } else {
    // Edge-triggered: every write is an event, though nobody reads.
    epoll_event event{.events = EPOLLIN | EPOLLET,
                      .data = {.u64 = reinterpret_cast<uint64_t>(&source) | kSourceTag}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, source.wake_fd_, &event) != 0) {
      return ErrnoError(errno, "cannot watch an eventfd");
    }
  }
  source.io_thread_ = this;
  source.phase_ = phase;
  source.notify_on_ = true;
  source.parked_ = false;
  source.ready_bit_ = NextReadyBit();
  AddSource(source);
  return absl::OkStatus();
}

void IoThread::Detach(Source& source) {
  if (source.io_thread_ != this) return;
  if (!std::exchange(source.parked_, false)) RemoveSource(source);
  source.io_thread_ = nullptr;
  if (uring_ != nullptr) {
    uring_->Unwatch(source.wake_fd_);
  } else {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.wake_fd_, nullptr);
  }
}

// Beyond 63 sources some share one.
uint64_t IoThread::NextReadyBit() {
  next_ready_bit_ = std::rotl(next_ready_bit_, 1);
  if (next_ready_bit_ == kCompletionRing) next_ready_bit_ <<= 1;
  return next_ready_bit_;
}

void IoThread::AddSource(Source& source) {
  Source** link = &sources_[static_cast<int>(source.phase_)];
  while (*link != nullptr) link = &(*link)->next_;
  *link = &source;
  source.next_ = nullptr;
  source.last_work_turn_ = stats_.turns.Get();
}

void IoThread::RemoveSource(Source& source) {
  if (next_source_ == &source) next_source_ = source.next_;
  Source** link = &sources_[static_cast<int>(source.phase_)];
  while (*link != &source) link = &(*link)->next_;
  *link = source.next_;
}

// Nobody needs to signal while this thread looks.
void IoThread::Quiet(Source& source) {
  if (!source.notify_on_) return;
  source.DisableNotify();
  source.notify_on_ = false;
}

// Whether it was not asked already. A fence and a look are due before anyone relies on it.
bool IoThread::AskForSignal(Source& source) {
  if (source.notify_on_) return false;
  source.EnableNotify();
  source.notify_on_ = true;
  return true;
}

void IoThread::Park(Source& source) {
  if (AskForSignal(source)) {
    // As in PrepareToSleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (source.HasWork()) return;
  }
  RemoveSource(source);
  source.parked_ = true;
  stats_.parked.Add();
}

void IoThread::Unpark(Source& source) {
  source.parked_ = false;
  AddSource(source);
  stats_.unparked.Add();
}

void Source::Written() {
  if (parked_) io_thread_->Unpark(*this);
}

void IoThread::HookList::AddFirst(Hook& hook) {
  if (hook.queued_) return;
  hook.queued_ = true;
  hook.next_ = first_;
  if (first_ == nullptr) end_ = &hook.next_;
  first_ = &hook;
}

bool IoThread::HookList::Run() {
  if (first_ == nullptr) return false;
  // What is added meanwhile is for the next time.
  Hook* hook = first_;
  first_ = nullptr;
  end_ = &first_;
  while (hook != nullptr) {
    Hook* next = hook->next_;
    hook->queued_ = false;
    hook->Run();
    hook = next;
  }
  return true;
}

void IoThread::SetPoll(const PollConfig& poll) {
  policy_ = PollPolicy::Create(poll);
  StartPolicy();
}

void IoThread::RunPosted() {
  if (mailbox_.load(std::memory_order_relaxed) == nullptr) return;  // saves a locked instruction
  // Acquire: pairs with the push in Post, so that Run sees all that its poster wrote.
  Task* newest = mailbox_.exchange(nullptr, std::memory_order_acquire);
  Task* oldest = nullptr;
  while (newest != nullptr) {
    Task* next = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Task* next = oldest->next_;
    // Before Run: what is posted from here on is news. An exchange, not a store: it pairs with the
    // exchange in Post, so that Run sees what was written before a Post that found the task queued.
    oldest->queued_.exchange(false, std::memory_order_acq_rel);
    oldest->Run();
    oldest = next;
  }
}

}  // namespace ringside
