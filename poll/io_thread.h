// An I/O thread: serves sources (rings that others fill), descriptors and tasks, one turn
// after the other, and sleeps when there is nothing to do. Everything attached to it runs on it
// alone, so devices and consoles need no locks among themselves.
//
// A turn: completions are reaped, timers that are due run, and so do kComplete sources; AtPublish
// hooks make results visible and signal; kTake sources take new work; AtHandOver hooks hand it over
// to whoever carries it out (the kernel, a device, other threads); what that completed already is
// published, unless this turn has published before; then the thread enters the kernel, with what is
// queued for it, and sleeps there unless something is left to do or its policy has it poll all
// rings for a while. So completions are signalled before new work is taken, new work is handed over
// before anyone waits, and a queue signals once per turn at most.
//
// Its parts: the tasks that others post (poll/mailbox.h), what it sleeps in (poll/waiter.h), and
// how it waits (poll/wait.h).
//
// A source that has no work for long while others have some is parked: it is asked to signal, and
// polled no more until it does. So a hundred idle queues cost a busy one nothing.
//
// Threads: Post, RunAndWait and stats are for any thread; all else is for the I/O thread itself
// (from a task, a watch, a source or a hook).
// Ownership: tasks, watches, sources and hooks belong to their callers and must outlive their use
// here; all lists are intrusive, so nothing is allocated in the steady state. The I/O thread
// outlives every Post into it, also one that is just returning.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "poll/mailbox.h"
#include "poll/source.h"
#include "poll/timers.h"
#include "poll/wait.h"
#include "poll/waiter.h"
#include "ringside/config.h"

namespace ringside {

const char* SignallingName(Signalling signalling);

class IoThread final : private Wait::Owner {
 public:
  enum class Waiter { kEpoll, kUring, kUringWithCommands };
  // kManyMachines: a turn takes at most kTurnRequests, or kTurnBytes and what the last of them has
  // more, from one queue, so that a machine waits no longer for its neighbours than one such turn
  // of each.
  enum class Serves { kOneMachine, kManyMachines };
  static constexpr size_t kTurnRequests = 32;
  static constexpr uint64_t kTurnBytes = 1 << 20;
  // So often a descriptor is looked at that the kernel cannot watch, for want of memory.
  static constexpr int64_t kRetryWatchNs = 10'000'000;

  // kUring, kUringWithCommands (poll/uring.h): FailedPrecondition where io_uring cannot be had.
  static absl::StatusOr<std::unique_ptr<IoThread>> Start(const std::string& name,
                                                         Waiter waiter = Waiter::kEpoll,
                                                         const IoThreadTuning& tuning = {},
                                                         Serves serves = Serves::kOneMachine);
  // Runs what was posted before, then ends the thread and joins it. Nothing is attached any more.
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Any thread. Costs no system call while the I/O thread is awake.
  void Post(Task& task) { mailbox_.Post(task); }
  // Any other thread: runs `function` on the I/O thread, and waits for its end.
  template <typename Function>
  void RunAndWait(Function function) {
    AwaitedTask task(std::move(function));
    Post(task);
    task.Wait();
  }
  // Any thread: has it run on the I/O thread, whether anybody waits for the event or not.
  template <typename Function>
  std::shared_ptr<const Event> Begin(Function function) {
    const auto task = KeptTask<Function>::New(std::move(function));
    Post(*task);
    return {task, &task->done()};
  }
  const IoThreadStats& stats() const { return stats_; }
  bool serves_many() const { return serves_ == Serves::kManyMachines; }

  // The I/O thread only.
  void SetPoll(const PollConfig& poll) { wait_.SetPoll(poll); }
  absl::Status Attach(Source& source, Phase phase);
  void Detach(Source& source);
  // Of an attached source of kWhileWanted: whether its signals end the sleep.
  void Want(const Source& source, bool wanted) { waiter_->Want(source.wake_fd_, wanted); }
  void AtPublish(Hook& hook) { publish_hooks_.Add(hook); }
  void AtHandOver(Hook& hook) { hand_over_hooks_.Add(hook); }
  // Before all of those.
  void BeforeHandOver(Hook& hook) { before_hand_over_.Add(hook); }
  // Whoever hands work over earlier in the turn than in such a hook says so: for observers.
  void HandsOverAtOnce() { ++at_once_; }
  uint64_t handed_over_at_once() const { return at_once_; }
  // Signals may be held here, as the thread polls now and then.
  bool may_hold() const { return signalling_ == Signalling::kCost && wait_.polls(); }
  // Until Drop; one that is not held already.
  void Hold(HeldSignal& signal);
  void Drop(HeldSignal& signal);
  void Arm(FdWatch& watch) {
    // Its owner looks for itself then, which also shows an error of the descriptor.
    if (!waiter_->Arm(watch)) timers_.Arm(watch.retry_, MonotonicNs() + kRetryWatchNs);
  }
  void Disarm(FdWatch& watch) {
    waiter_->Disarm(watch);
    timers_.Disarm(watch.retry_);
  }
  // As Timers.
  void Arm(Timer& timer, int64_t at_ns) { timers_.Arm(timer, at_ns); }
  void Disarm(Timer& timer) { timers_.Disarm(timer); }
  // Requests that are on their way to where the bytes are: what the thread waits for depends on it.
  void RequestBegins() { ++in_flight_; }
  void RequestEnds() { --in_flight_; }
  // Whether a source of new work other than `one` has had some lately, so that each turn should be
  // short. A look at each of them.
  bool IsShared(const Source* one) const;
  // Null unless they are traced. Holds those that a policy planned.
  const WaitTrace* waits() const { return wait_.trace(); }
  // How it waits and why. That of a thread that never polls is empty.
  PollExplanation Explain() const { return wait_.Explain(); }
  // Null if the thread sleeps in epoll. Its pointer may be read, not used, by any thread.
  Uring* uring() const { return waiter_->uring(); }

 private:
  class HookList {
   public:
    void Add(Hook& hook) {
      if (hook.queued_) return;
      hook.queued_ = true;
      hook.next_ = nullptr;
      *end_ = &hook;
      end_ = &hook.next_;
    }
    // Whether there were any.
    bool Run();
    bool empty() const { return first_ == nullptr; }

   private:
    Hook* first_ = nullptr;
    Hook** end_ = &first_;
  };
  friend class Source;
  static constexpr uint64_t kCompletionRing = 1;  // in WaitOutcome::ready

  IoThread(EventFd wake, const IoThreadTuning& tuning, Serves serves)
      : mailbox_(std::move(wake)),
        wait_(*this, mailbox_, stats_, tuning.poll, tuning.trace_waits),
        signalling_(tuning.signalling),
        serves_(serves) {}
  absl::Status CreateWaiter(Waiter waiter);

  void Loop();
  void RunTimers();
  void RunSources(Phase phase);
  void AddSource(Source& source);
  void RemoveSource(Source& source);
  uint64_t NextReadyBit();
  void Quiet(Source& source);
  bool AskForSignal(Source& source);
  void Park(Source& source);
  void Unpark(Source& source);
  bool AnythingToDo() override;
  bool HasRings() override { return attached_ > 0 || in_flight_ > 0; }
  bool LookAtDescriptors() override { return waiter_->LookAtDescriptors(); }
  int64_t UntilTimer(int64_t most_ns) override;
  void AskForSignals() override;
  bool HoldsSignals() override { return held_ != nullptr; }
  void LookAtHeld(int64_t now_ns) override;
  void ReleaseHeld() override;
  void QuietSources() override;

  IoThreadStats stats_;
  Mailbox mailbox_;
  std::unique_ptr<ringside::Waiter> waiter_;
  Wait wait_;
  const Signalling signalling_;
  const Serves serves_;
  Source* sources_[2] = {};        // that are polled, by Phase; the parked ones are in no list
  Source* next_source_ = nullptr;  // of the loop that is running one
  HookList publish_hooks_;
  HookList before_hand_over_;
  HookList hand_over_hooks_;
  HeldSignal* held_ = nullptr;  // the first one
  Timers timers_;
  size_t attached_ = 0;  // sources of Phase::kTake, the parked ones too
  uint64_t in_flight_ = 0;
  uint64_t at_once_ = 0;
  uint64_t next_ready_bit_ = kCompletionRing;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringside
