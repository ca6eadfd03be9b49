// How an I/O thread waits: it looks, sleeps, and wakes for descriptors.
#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

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
  kicked_ns_.store(0, std::memory_order_relaxed);
  sleeping_.store(true, std::memory_order_seq_cst);  // pairs with the load in Post
  // Our stores above before the looks at the rings that follow: pairs with the barrier between the
  // driver's store of its index and its look at our wish for notifications (VIRTIO 1.2 section
  // 2.7.13.4.1). Either we see the entry, or the driver signals.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// First figures of what sleeping costs: the least of a few short sleeps on a processor that may
// have gone idle.
void IoThread::MeasureSleeping() {
  constexpr int64_t kSleepNs = 50'000;
  prctl(PR_SET_TIMERSLACK, 1);  // ns; the default of 50 us would be what is measured
  SleepCost least = {.wake_ns = INT64_MAX, .cpu_ns = INT64_MAX};
  for (int round = 0; round < 5; ++round) {
    const int64_t cpu_ns = ThreadCpuNs();
    const int64_t start_ns = MonotonicNs();
    const timespec sleep = {.tv_sec = 0, .tv_nsec = kSleepNs};
    nanosleep(&sleep, nullptr);
    const int64_t late_ns = MonotonicNs() - start_ns - kSleepNs;
    least.wake_ns = std::min(least.wake_ns, std::max<int64_t>(0, late_ns));
    least.cpu_ns = std::min(least.cpu_ns, ThreadCpuNs() - cpu_ns);
  }
  least.kick_ns = least.wake_ns;  // more, as will be seen
  sleep_meter_ = SleepMeter(least);
}

void IoThread::StartPolicy() {
  to_learn_ = false;
  if (policy_ == nullptr) return;
  if (sleep_meter_.cost().cpu_ns == 0) MeasureSleeping();
  PassOnSleepCost();
}

void IoThread::PassOnSleepCost() {
  const SleepCost& cost = sleep_meter_.cost();
  stats_.wake_ns.Set(static_cast<uint64_t>(cost.wake_ns));
  stats_.kick_ns.Set(static_cast<uint64_t>(cost.kick_ns));
  stats_.sleep_cpu_ns.Set(static_cast<uint64_t>(cost.cpu_ns));
  policy_->SetSleepCost(cost);
}

PollExplanation IoThread::Explain() const {
  PollExplanation explanation;
  if (policy_ != nullptr) explanation = policy_->Explain();
  explanation.sleep_cost = sleep_meter_.cost();
  return explanation;
}

void IoThread::WaitForWork() {
  if (to_learn_) Learn();
  if (HasWork()) return StayAwake();
  if (policy_ == nullptr) {
    Sleep();
    return;
  }
  wait_ = {.what = in_flight_ > 0 ? Waiting::kInFlight : Waiting::kIdle, .start_ns = MonotonicNs()};
  const WaitPlan plan = policy_->Plan(wait_.what, wait_.start_ns);
  stats_.spin_limit_ns.Set(static_cast<uint64_t>(plan.spin_ns));
  to_learn_ = true;
  ready_ = 0;
  if (plan.doze_ns > 0 && Doze(plan.doze_ns)) return EndSleep(plan.doze_ns);
  if (plan.spin_ns > 0 && Spin(plan)) return StayAwake();
  MeasuredSleep();
  EndSleep();
}

// Once it is known who had work, and what came is under way.
void IoThread::Learn() {
  to_learn_ = false;
  wait_.ready = ready_;
  if (wait_trace_ != nullptr) wait_trace_->Add() = wait_;
  policy_->Observe(wait_);
}

// Something came, before a timer was due at `most_ns`, and then it took a while to wake.
void IoThread::EndSleep(int64_t most_ns) {
  if (!to_learn_) return;  // a watch has changed the policy
  const int64_t now_ns = MonotonicNs();
  if (const int64_t kicked_ns = kicked_ns_.load(std::memory_order_relaxed); kicked_ns != 0) {
    sleep_meter_.Kicked(now_ns - kicked_ns);
    PassOnSleepCost();
  }
  const int64_t latency_ns = sleep_meter_.cost().LatencyNs(wait_.what);
  const int64_t waited_ns = std::min(now_ns - wait_.start_ns - latency_ns, most_ns);
  wait_.waited_ns = std::max(waited_ns, wait_.waited_ns);
  wait_.slept = true;
}

// Sleeps until something comes or the time is over. Whether something came.
bool IoThread::Doze(int64_t doze_ns) {
  stats_.dozes.Add();
  const int64_t start_ns = MonotonicNs();
  const bool came = Sleep(doze_ns);
  const int64_t now_ns = MonotonicNs();
  const int64_t late_ns = now_ns - start_ns - doze_ns;
  if (came) {
    sleep_meter_.AtLeast(wait_.what, late_ns);
  } else {
    if (late_ns >= 0) sleep_meter_.Late(late_ns);  // else no timer has ended it
    stats_.doze_ends.Add();
    wait_.waited_ns = now_ns - wait_.start_ns;
  }
  if (policy_ != nullptr) PassOnSleepCost();  // a watch may have taken it away
  return came;
}

// Whether something came. A clock is read between looks only: after one that found something, its
// 20 ns would be latency.
bool IoThread::Spin(const WaitPlan& plan) {
  constexpr int kLooksAClock = 8;           // reading it costs as much as a look or two
  if (uring_ != nullptr) uring_->Submit();  // what was queued is on its way before anyone looks
  QuietSources();
  stats_.spins.Add();
  const int64_t start_ns = wait_.start_ns + wait_.waited_ns;
  bool hit = false;
  while (!hit && wait_.spun_ns < plan.spin_ns && !wait_.preempted) {
    hit = uring_ == nullptr && LookAtEpoll();
    for (int look = 0; look < kLooksAClock && !hit; ++look) {
      __builtin_ia32_pause();
      hit = HasWork();
    }
    if (hit) break;
    const int64_t before_ns = std::exchange(wait_.spun_ns, MonotonicNs() - start_ns);
    if (plan.offers_cpu) OfferCpu(wait_.spun_ns - before_ns);
  }
  wait_.waited_ns += wait_.spun_ns;
  stats_.spin_hits.Add(hit ? 1 : 0);
  (hit ? stats_.spin_used_ns : stats_.spin_wasted_ns).Add(static_cast<uint64_t>(wait_.spun_ns));
  return hit;
}

// Now and then, of the time it looks, the thread asks whether another one waits for its processor.
// Taken once it may be one of the kernel's that runs for a moment.
void IoThread::OfferCpu(int64_t looked_ns) {
  constexpr int64_t kPeriodNs = 100'000;
  constexpr int64_t kTakenNs = 10'000;   // the call alone takes some 300 ns
  constexpr int64_t kSliceNs = 500'000;  // who takes so much may well go on
  looked_ns_ += looked_ns;
  if (looked_ns_ < kPeriodNs) return;
  looked_ns_ = 0;
  const int64_t start_ns = MonotonicNs();
  sched_yield();
  const int64_t taken_ns = MonotonicNs() - start_ns;
  times_taken_ = taken_ns < kTakenNs ? 0 : times_taken_ + 1;
  wait_.preempted = times_taken_ >= 2 || taken_ns >= kSliceNs;
  stats_.preempted.Add(wait_.preempted ? 1 : 0);
}

void IoThread::QuietSources() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) Quiet(*source);
  }
}

// Now and then one is measured: its CPU time by a clock, and what waking takes by a timer that cuts
// it in two.
void IoThread::MeasuredSleep() {
  constexpr uint64_t kSleepsAMeasurement = 256;
  constexpr int64_t kProbeNs = 50'000;
  if (stats_.sleeps.Get() % kSleepsAMeasurement != 0) {
    Sleep();
    return;
  }
  if (Doze(kProbeNs)) return;
  const int64_t cpu_ns = ThreadCpuNs();
  Sleep();
  sleep_meter_.Cpu(ThreadCpuNs() - cpu_ns);
}

// Whether something came before the time was over.
bool IoThread::Sleep(int64_t timeout_ns) {
  PrepareToSleep();
  bool came = HasWork();
  if (came) {
    StayAwake();
  } else {
    stats_.sleeps.Add();
    if (uring_ != nullptr) {
      uring_->SubmitAndWait(timeout_ns);
      came = HasWork();
    } else {
      came = RunOneWatch(timeout_ns);
    }
    stats_.wake_ups.Add();
  }
  sleeping_.store(false, std::memory_order_relaxed);  // one wake-up too many at worst
  return came;
}

// Passes on what was queued, and takes what came to the waiter, if anything.
void IoThread::StayAwake() {
  if (uring_ == nullptr) {
    LookAtEpoll();
    return;
  }
  uring_->Submit();
  if (epoll_listener_.fired) RunOneWatch(0);
}

// A system call, so not in every turn: sources, tasks and hooks are found without it. Whether there
// was something.
bool IoThread::LookAtEpoll() {
  constexpr unsigned kTurnsALook = 64;
  return ++epoll_idle_ % kTurnsALook == 0 && RunOneWatch(0);
}

int IoThread::WaitForEpoll(epoll_event& event, int64_t timeout_ns) const {
  if (timeout_ns == 0) return epoll_wait(epoll_.get(), &event, 1, 0);
  if (timeout_ns == kForever) return epoll_wait(epoll_.get(), &event, 1, -1);
  // Where it is forbidden, as in sandboxes that do not know it, a doze is no sleep at all.
  const timespec timeout = {.tv_sec = timeout_ns / 1'000'000'000,
                            .tv_nsec = timeout_ns % 1'000'000'000};
  return epoll_pwait2(epoll_.get(), &event, 1, &timeout, nullptr);
}

bool IoThread::RunOneWatch(int64_t timeout_ns) {
  // One event a call: a watch may disarm and destroy another one whose event would be next.
  epoll_event event;
  const bool got = WaitForEpoll(event, timeout_ns) > 0;
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
