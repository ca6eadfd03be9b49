// How an I/O thread waits: it looks, sleeps, and wakes for descriptors.
#include <algorithm>
#include <cerrno>
#include <sys/prctl.h>

#include "base/clock.h"
#include "poll/io_thread.h"

namespace ringside {

bool IoThread::HasWork() {
  if (mailbox_.load(std::memory_order_seq_cst) != nullptr || always_ready_ != nullptr ||
      epoll_listener_.fired || !publish_hooks_.empty() || !submit_hooks_.empty()) {
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
    for (; source != nullptr; source = source->next_) AskForSignal(*source);
  }
  sleeping_.store(true, std::memory_order_seq_cst);  // pairs with the load in Post
  // Our stores above before the looks at the rings that follow: pairs with the barrier between the
  // driver's store of its index and its look at our wish for notifications (VIRTIO 1.2 section
  // 2.7.13.4.1). Either we see the entry, or the driver signals.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// How late a timer wakes this thread on a processor that may have gone idle: the least of a few.
void IoThread::MeasureWaking() {
  if (policy_ == nullptr) return;
  constexpr int64_t kSleepNs = 50'000;
  prctl(PR_SET_TIMERSLACK, 1);  // ns; the default of 50 us would be what is measured
  wake_ns_ = INT64_MAX;
  for (int round = 0; round < 5; ++round) {
    const int64_t start_ns = MonotonicNs();
    const timespec sleep = {.tv_sec = 0, .tv_nsec = kSleepNs};
    nanosleep(&sleep, nullptr);
    wake_ns_ = std::min(wake_ns_, std::max<int64_t>(0, MonotonicNs() - start_ns - kSleepNs));
  }
  stats_.wake_ns.Set(static_cast<uint64_t>(wake_ns_));
}

void IoThread::WaitForWork() {
  if (HasWork()) return Wait(false);
  if (policy_ == nullptr) return Sleep();
  const Waiting what = in_flight_ > 0 ? Waiting::kInFlight : Waiting::kIdle;
  const int64_t spin_ns = policy_->SpinNs(what);
  const int64_t start_ns = MonotonicNs();
  stats_.spin_limit_ns.Set(static_cast<uint64_t>(spin_ns));
  if (spin_ns > 0 && Spin(what, spin_ns, start_ns)) return Wait(false);
  Sleep();
  if (policy_ == nullptr) return;  // a watch may have taken it away
  policy_->Observe(what, std::max<int64_t>(0, MonotonicNs() - start_ns - wake_ns_));
}

// Whether something came. A clock is read before and between looks only: after one that found
// something, its 20 ns would be latency.
bool IoThread::Spin(Waiting what, int64_t spin_ns, int64_t start_ns) {
  constexpr int kLooksAClock = 8;           // reading it costs as much as a look or two
  if (uring_ != nullptr) uring_->Submit();  // what was queued is on its way before anyone looks
  QuietSources();
  stats_.spins.Add();
  for (int64_t spun_ns = 0;; spun_ns = MonotonicNs() - start_ns) {
    if (spun_ns >= spin_ns) {
      stats_.spin_wasted_ns.Add(static_cast<uint64_t>(spun_ns));
      return false;
    }
    bool hit = uring_ == nullptr && LookAtEpoll();
    for (int look = 0; look < kLooksAClock && !hit; ++look) {
      __builtin_ia32_pause();
      hit = HasWork();
    }
    if (!hit) continue;
    stats_.spin_hits.Add();
    stats_.spin_used_ns.Add(static_cast<uint64_t>(spun_ns));
    if (policy_ != nullptr) policy_->Observe(what, spun_ns);
    return true;
  }
}

void IoThread::QuietSources() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) Quiet(*source);
  }
}

void IoThread::Sleep() {
  PrepareToSleep();
  const bool may_sleep = !HasWork();
  if (may_sleep) stats_.sleeps.Add();
  Wait(may_sleep);
  if (may_sleep) stats_.wake_ups.Add();
  sleeping_.store(false, std::memory_order_relaxed);  // one wake-up too many at worst
}

void IoThread::Wait(bool may_sleep) {
  if (uring_ == nullptr) {
    if (may_sleep) {
      RunOneWatch(-1);
    } else {
      LookAtEpoll();
    }
  } else if (epoll_listener_.fired) {
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
  return ++epoll_idle_ % kTurnsALook == 0 && RunOneWatch(0);
}

bool IoThread::RunOneWatch(int timeout_ms) {
  // One event a call: a watch may disarm and destroy another one whose event would be next.
  epoll_event event;
  const bool got = epoll_wait(epoll_.get(), &event, 1, timeout_ms) > 0;
  // The ring told of the first event only: there may be more.
  epoll_listener_.fired = got && uring_ != nullptr;
  if (!got) return false;
  if ((event.data.u64 & kSourceTag) != 0) {
    reinterpret_cast<Source*>(event.data.u64 & ~kSourceTag)->Written();
  } else if (event.data.ptr == nullptr) {
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
