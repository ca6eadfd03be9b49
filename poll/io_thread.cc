#include "poll/io_thread.h"

#include <cerrno>

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
  uring_->Watch(epoll_.get(), &epoll_fired_);
  return absl::OkStatus();
}

IoThread::IoThread(UniqueFd epoll, EventFd wake, const IoThreadTuning& tuning)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      signalling_(tuning.signalling),
      policy_(PollPolicy::Create(tuning.poll)) {}

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
  if (sleeping_.load(std::memory_order_seq_cst)) wake_.Signal();
}

void IoThread::Loop() {
  // Tasks posted before the stop are older than it in the mailbox, so they have run by then.
  while (!stop_) {
    stats_.turns.Add();
    if (uring_ != nullptr) uring_->Reap();
    RunSources(Phase::kComplete);
    RunPosted();
    RunAlwaysReady();
    publish_hooks_.Run();
    RunSources(Phase::kSubmit);
    submit_hooks_.Run();
    if (!stop_) WaitForWork();
  }
}

void IoThread::RunSources(Phase phase) {
  // Whatever a source detaches, itself included, the loop goes on with what is still there.
  for (Source* source = sources_[static_cast<int>(phase)]; source != nullptr;
       source = next_source_) {
    next_source_ = source->next_;
    if (!source->HasWork()) continue;
    if (source->notify_on_) {
      source->DisableNotify();
      source->notify_on_ = false;
    }
    source->Run();
  }
}

absl::Status IoThread::Attach(Source& source, Phase phase) {
  if (uring_ != nullptr) {
    uring_->Watch(source.wake_fd_);
  } else {
    // Edge-triggered: every write is an event, though nobody reads.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = this}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, source.wake_fd_, &event) != 0) {
      return ErrnoError(errno, "cannot watch an eventfd");
    }
  }
  Source** link = &sources_[static_cast<int>(phase)];
  while (*link != nullptr) link = &(*link)->next_;
  *link = &source;
  source.next_ = nullptr;
  source.notify_on_ = true;
  return absl::OkStatus();
}

void IoThread::Detach(Source& source) {
  if (next_source_ == &source) next_source_ = source.next_;
  for (Source*& first : sources_) {
    for (Source** link = &first; *link != nullptr; link = &(*link)->next_) {
      if (*link != &source) continue;
      *link = source.next_;
      if (uring_ != nullptr) {
        uring_->Unwatch(source.wake_fd_);
      } else {
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.wake_fd_, nullptr);
      }
      return;
    }
  }
}

void IoThread::HookList::Add(Hook& hook) {
  if (hook.queued_) return;
  hook.queued_ = true;
  hook.next_ = nullptr;
  *end_ = &hook;
  end_ = &hook.next_;
}

void IoThread::HookList::AddFirst(Hook& hook) {
  if (hook.queued_) return;
  hook.queued_ = true;
  hook.next_ = first_;
  if (first_ == nullptr) end_ = &hook.next_;
  first_ = &hook;
}

void IoThread::HookList::Run() {
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
}

void IoThread::SetPoll(const PollConfig& poll) {
  policy_ = PollPolicy::Create(poll);
}

void IoThread::RunPosted() {
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

bool IoThread::HasWork() {
  if (mailbox_.load(std::memory_order_seq_cst) != nullptr || always_ready_ != nullptr ||
      epoll_fired_ || !publish_hooks_.empty() || !submit_hooks_.empty()) {
    return true;
  }
  if (uring_ != nullptr && uring_->HasCompletions()) return true;
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) {
      if (source->HasWork()) return true;
    }
  }
  return false;
}

void IoThread::PrepareToSleep() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) {
      if (source->notify_on_) continue;
      source->EnableNotify();
      source->notify_on_ = true;
    }
  }
  sleeping_.store(true, std::memory_order_seq_cst);  // pairs with the load in Post
  // Our stores above before the looks at the rings that follow: pairs with the barrier between the
  // driver's store of its index and its look at our wish for notifications (VIRTIO 1.2 section
  // 2.7.13.4.1). Either we see the entry, or the driver signals.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void IoThread::WaitForWork() {
  if (HasWork()) return Wait(false);
  if (policy_ == nullptr) return Sleep();
  const int64_t spin_ns = policy_->SpinNs();
  const int64_t start_ns = MonotonicNs();
  if (spin_ns > 0 && Spin(start_ns, spin_ns)) {
    Wait(false);
  } else {
    Sleep();
  }
  policy_->Observe(MonotonicNs() - start_ns);
}

// Whether something came.
bool IoThread::Spin(int64_t start_ns, int64_t spin_ns) {
  constexpr int kLooksAClock = 8;           // reading it costs as much as a look
  if (uring_ != nullptr) uring_->Submit();  // what was queued is on its way before anyone looks
  QuietSources();
  stats_.spins.Add();
  int64_t spun_ns = 0;
  bool hit = false;
  while (!hit && spun_ns < spin_ns) {
    for (int look = 0; look < kLooksAClock && !hit; ++look) {
      __builtin_ia32_pause();
      hit = HasWork();
    }
    spun_ns = MonotonicNs() - start_ns;
    if (!hit && uring_ == nullptr) hit = LookAtEpoll();
  }
  (hit ? stats_.spin_used_ns : stats_.spin_wasted_ns).Add(static_cast<uint64_t>(spun_ns));
  if (hit) stats_.spin_hits.Add();
  return hit;
}

// Nobody needs to signal while this thread looks.
void IoThread::QuietSources() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) {
      if (!source->notify_on_) continue;
      source->DisableNotify();
      source->notify_on_ = false;
    }
  }
}

void IoThread::Sleep() {
  PrepareToSleep();
  Wait(!HasWork());
  sleeping_.store(false, std::memory_order_relaxed);  // one wake-up too many at worst
}

void IoThread::Wait(bool may_sleep) {
  if (may_sleep) stats_.sleeps.Add();
  if (uring_ == nullptr) {
    if (may_sleep) {
      RunOneWatch(-1);
    } else {
      LookAtEpoll();
    }
  } else if (epoll_fired_) {
    uring_->Submit();
    RunOneWatch(0);
  } else if (may_sleep) {
    uring_->SubmitAndWait();
  } else {
    uring_->Submit();
  }
}

// A system call, so not in every turn: sources, tasks and hooks are found without it. Whether there
// was something.
bool IoThread::LookAtEpoll() {
  constexpr unsigned kTurnsALook = 64;
  return ++busy_turns_ % kTurnsALook == 0 && RunOneWatch(0);
}

bool IoThread::RunOneWatch(int timeout_ms) {
  // One event a call: a watch may disarm and destroy another one whose event would be next.
  epoll_event event;
  const bool got = epoll_wait(epoll_.get(), &event, 1, timeout_ms) > 0;
  // The ring told of the first event only: there may be more.
  epoll_fired_ = got && uring_ != nullptr;
  if (!got || event.data.ptr == this) return false;  // a source's wake-up: the turn finds its work
  if (event.data.ptr == nullptr) {
    wake_.Clear();
  } else {
    static_cast<FdWatch*>(event.data.ptr)->Ready();
  }
  return true;
}

void IoThread::Arm(FdWatch& watch) {
  if (watch.in_always_ready_) return;
  epoll_event event{.events = watch.events_ | EPOLLONESHOT, .data = {.ptr = &watch}};
  const int operation = watch.added_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), operation, watch.fd_, &event) == 0) {
    watch.added_ = true;
    return;
  }
  // EPERM: the file cannot be polled because it never blocks. Any other error shows up at the read
  // or write that follows.
  FdWatch** link = &always_ready_;
  while (*link != nullptr) link = &(*link)->next_always_ready_;
  *link = &watch;
  watch.next_always_ready_ = nullptr;
  watch.in_always_ready_ = true;
}

void IoThread::Disarm(FdWatch& watch) {
  if (watch.added_) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch.fd_, nullptr);
  watch.added_ = false;
  for (FdWatch** link = &always_ready_; *link != nullptr; link = &(*link)->next_always_ready_) {
    if (*link != &watch) continue;
    *link = watch.next_always_ready_;
    watch.in_always_ready_ = false;
    return;
  }
}

void IoThread::RunAlwaysReady() {
  // One a turn: whatever Ready arms or destroys, others and the mailbox come first.
  FdWatch* watch = always_ready_;
  if (watch == nullptr) return;
  always_ready_ = watch->next_always_ready_;
  watch->in_always_ready_ = false;
  watch->Ready();
}

}  // namespace ringside
