#include "poll/wait.h"

#include <algorithm>
#include <atomic>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

#include "base/clock.h"

namespace ringside {

void Wait::SetPoll(const PollConfig& poll) {
  policy_ = PollPolicy::Create(poll);
  Start();
}

void Wait::Start() {
  to_learn_ = false;
  prctl(PR_SET_TIMERSLACK, 1);  // ns; by default every timer would be 50 us late
  if (policy_ == nullptr) return;
  if (sleep_meter_.cost().cpu_ns == 0) MeasureSleeping();
  PassOnSleepCost();
}

// First figures of what sleeping costs: the least of a few short sleeps on a processor that may
// have gone idle.
void Wait::MeasureSleeping() {
  constexpr int64_t kSleepNs = 50'000;
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

void Wait::PassOnSleepCost() {
  const SleepCost& cost = sleep_meter_.cost();
  stats_.wake_ns.Set(static_cast<uint64_t>(cost.wake_ns));
  stats_.kick_ns.Set(static_cast<uint64_t>(cost.kick_ns));
  stats_.sleep_cpu_ns.Set(static_cast<uint64_t>(cost.cpu_ns));
  policy_->SetSleepCost(cost);
}

PollExplanation Wait::Explain() const {
  PollExplanation explanation;
  if (policy_ != nullptr) explanation = policy_->Explain();
  explanation.sleep_cost = sleep_meter_.cost();
  return explanation;
}

// The stages of a wait: it dozes, if that is planned; polls, if that is; and sleeps, now and then
// by a timer first, for a measurement. Whichever sees something come is the last.

int64_t Wait::BeginIdle(bool requests_in_flight) {
  if (policy_ == nullptr || !owner_.HasRings()) return GoToSleep(Stage::kSleep);
  wait_ = {.what = requests_in_flight ? Waiting::kInFlight : Waiting::kIdle,
           .start_ns = MonotonicNs()};
  plan_ = policy_->Plan(wait_.what, wait_.start_ns);
  stats_.spin_limit_ns.Set(static_cast<uint64_t>(plan_.spin_ns));
  to_learn_ = true;
  ready_ = 0;
  return plan_.doze_ns > 0 && !PollsForHeld() ? Doze(Stage::kDoze, plan_.doze_ns) : LookOrSleep();
}

int64_t Wait::Advance(bool came) {
  if (stage_ == Stage::kLook) return Spin(came) ? kOver : MeasuredSleep();
  mailbox_.EndSleep();
  if (!came_) stats_.wake_ups.Add();  // else it did not sleep
  if (stage_ == Stage::kSleep) {
    const int64_t start_ns = std::exchange(sleep_cpu_ns_, 0);
    if (start_ns != 0) sleep_meter_.Cpu(ThreadCpuNs() - start_ns);
    return EndWait();
  }
  came_ = came_ || came || owner_.AnythingToDo();
  EndDoze();
  if (came_) return EndWait(stage_ == Stage::kDoze ? doze_ns_ : kForever);
  if (stage_ == Stage::kDoze) return LookOrSleep();
  sleep_cpu_ns_ = ThreadCpuNs();
  return GoToSleep(Stage::kSleep);
}

// Once it is known who had work, and the work that came is under way.
void Wait::Learn() {
  to_learn_ = false;
  wait_.ready = ready_;
  if (trace_ != nullptr) trace_->Add() = wait_;
  policy_->Observe(wait_);
}

int64_t Wait::LookOrSleep() {
  if (plan_.spin_ns == 0 && !PollsForHeld()) return MeasuredSleep();
  stage_ = Stage::kLook;
  return 0;  // what is queued is on its way before anyone looks
}

// Now and then one is measured: its CPU time by a clock, and what waking takes by a timer that cuts
// it in two.
int64_t Wait::MeasuredSleep() {
  constexpr uint64_t kSleepsPerMeasurement = 256;
  constexpr int64_t kProbeNs = 50'000;
  const bool measured = stats_.sleeps.Get() % kSleepsPerMeasurement == 0;
  return measured ? Doze(Stage::kProbe, kProbeNs) : GoToSleep(Stage::kSleep);
}

int64_t Wait::Doze(Stage stage, int64_t timeout_ns) {
  stats_.dozes.Add();
  doze_ns_ = timeout_ns;
  doze_start_ns_ = MonotonicNs();
  return GoToSleep(stage, timeout_ns);
}

int64_t Wait::GoToSleep(Stage stage, int64_t timeout_ns) {
  stage_ = stage;
  owner_.ReleaseHeld();
  owner_.AskForSignals();
  mailbox_.BeginSleep();
  // Our stores above before the looks at the rings that follow: pairs with the barrier between the
  // driver's store of its index and its look at our wish for notifications (VIRTIO 1.2 section
  // 2.7.13.4.1). Either we see the entry, or the driver signals.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  came_ = owner_.AnythingToDo();
  if (came_) return 0;
  stats_.sleeps.Add();
  return owner_.UntilTimer(timeout_ns);
}

void Wait::EndDoze() {
  const int64_t now_ns = MonotonicNs();
  const int64_t late_ns = now_ns - doze_start_ns_ - doze_ns_;
  if (came_) {
    sleep_meter_.AtLeast(wait_.what, late_ns);
  } else {
    if (late_ns >= 0) sleep_meter_.Late(late_ns);  // else no timer has ended it
    stats_.doze_ends.Add();
    wait_.waited_ns = now_ns - wait_.start_ns;
  }
  if (policy_ != nullptr) PassOnSleepCost();  // a watch may have taken it away
}

// Something came, before a timer was due at `most_ns`, and then it took a while to wake.
int64_t Wait::EndWait(int64_t most_ns) {
  if (!to_learn_) return kOver;  // there is no policy, or a watch has changed it
  const int64_t now_ns = MonotonicNs();
  if (const int64_t kicked_ns = mailbox_.kicked_ns(); kicked_ns != 0) {
    sleep_meter_.Kicked(now_ns - kicked_ns);
    PassOnSleepCost();
  }
  const int64_t latency_ns = sleep_meter_.cost().LatencyNs(wait_.what);
  const int64_t waited_ns = std::min(now_ns - wait_.start_ns - latency_ns, most_ns);
  wait_.waited_ns = std::max(waited_ns, wait_.waited_ns);
  wait_.slept = true;
  return kOver;
}

// Whether something came. A clock is read between looks only: after one that found something, its
// 20 ns would be latency.
bool Wait::Spin(bool hit) {
  constexpr int kLooksPerClock = 8;  // reading it costs as much as a look or two
  owner_.QuietSources();
  stats_.spins.Add();
  const int64_t start_ns = wait_.start_ns + wait_.waited_ns;
  while (!hit && !wait_.preempted && (wait_.spun_ns < plan_.spin_ns || PollsForHeld())) {
    hit = owner_.LookAtDescriptors();
    for (int look = 0; look < kLooksPerClock && !hit; ++look) {
      __builtin_ia32_pause();
      hit = owner_.AnythingToDo();
    }
    if (hit) break;
    const int64_t now_ns = MonotonicNs();
    const int64_t before_ns = std::exchange(wait_.spun_ns, now_ns - start_ns);
    if (owner_.HoldsSignals()) owner_.LookAtHeld(now_ns);
    if (plan_.offers_cpu || PollsForHeld()) OfferCpu(wait_.spun_ns - before_ns);
  }
  wait_.waited_ns += wait_.spun_ns;
  stats_.spin_hits.Add(hit ? 1 : 0);
  (hit ? stats_.spin_used_ns : stats_.spin_wasted_ns).Add(static_cast<uint64_t>(wait_.spun_ns));
  return hit;
}

// Now and then, of the time it polls, the thread asks whether another one waits for its processor.
// Taken once it may be one of the kernel's that runs for a moment.
void Wait::OfferCpu(int64_t looked_ns) {
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
  wait_.preempted_for_long = taken_ns >= kSliceNs;
  // What takes it for a moment may be what carries out the requests: no reason to interrupt the
  // guest.
  wait_.preempted = wait_.preempted_for_long || (times_taken_ >= 2 && !PollsForHeld());
  stats_.preempted.Add(wait_.preempted ? 1 : 0);
}

}  // namespace ringside
