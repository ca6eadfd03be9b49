// How an I/O thread waits when a turn has left it nothing to do: it polls for more, dozes by a
// timer, or sleeps, as its policy says, and it measures what sleeping costs. What enters the kernel
// is the thread itself:
//
//   for (ns = wait.Begin(...); ns != Wait::kOver; ns = wait.Next(came)) came = waiter.Enter(ns);
//
// Threads: the I/O thread's own; Start, too, is called there.
// Ownership: whatever it is given outlives it.
#pragma once

#include <memory>

#include "base/counter.h"
#include "poll/mailbox.h"
#include "poll/policy.h"
#include "poll/sleep_meter.h"
#include "poll/wait_trace.h"

namespace ringside {

struct IoThreadStats {
  Counter turns;
  Counter spins;           // waits that began by polling
  Counter spin_hits;       // of those, the ones that saw something come
  Counter spin_used_ns;    // time spent polling when something came
  Counter spin_wasted_ns;  // time spent polling when nothing did
  Counter spin_limit_ns;   // no count: for how long the last wait would poll
  Counter dozes;           // waits that began with a sleep by a timer
  Counter doze_ends;       // of those, the ones that the timer ended
  Counter preempted;       // polls given up since another thread waited for the CPU
  Counter sleeps;          // dozes too
  Counter wake_ups;        // as many, or one less while it sleeps
  Counter wake_ns;         // no count: what waking by an interrupt takes
  Counter kick_ns;         // no count: what waking by another thread takes
  Counter sleep_cpu_ns;    // no count: the CPU time of a sleep
  Counter parked;          // sources that fell silent and are no longer polled
  Counter unparked;
};

class Wait {
 public:
  // The thread.
  class Owner {
   public:
    // A look at memory: whether a turn would find anything to do.
    virtual bool AnythingToDo() = 0;
    // Whether there is any ring to look at, or a request in flight: else polling finds nothing.
    virtual bool HasRings() = 0;
    // Lets a watch run if its descriptor is ready, now and then. Whether one did.
    virtual bool LookAtDescriptors() = 0;
    // For how long the thread may sleep, `most_ns` at the longest, until it has something to do at
    // a time of the clock.
    virtual int64_t UntilTimer(int64_t most_ns) = 0;
    // Asks all sources to signal, or not to bother.
    virtual void AskForSignals() = 0;
    // Signals of its own that are held while it is awake.
    virtual bool HoldsSignals() = 0;
    virtual void LookAtHeld(int64_t now_ns) = 0;
    virtual void ReleaseHeld() = 0;
    virtual void QuietSources() = 0;

   protected:
    ~Owner() = default;
  };
  static constexpr int64_t kOver = -1;

  Wait(Owner& owner, Mailbox& mailbox, IoThreadStats& stats, const PollConfig& poll, bool trace)
      : owner_(owner),
        mailbox_(mailbox),
        stats_(stats),
        policy_(PollPolicy::Create(poll)),
        trace_(trace ? std::make_unique<WaitTrace>(kTracedWaits) : nullptr) {}

  // Whether there is a policy by which it may poll.
  bool polls() const { return policy_ != nullptr; }
  void Start();
  void SetPoll(const PollConfig& poll);

  // The turn is over. For how long, ns, the thread is to sleep as it enters the kernel. 0: not at
  // all, as there is something to do, or as it is to poll for that first.
  int64_t Begin(bool anything_to_do, bool requests_in_flight) {
    if (to_learn_) Learn();
    stage_ = Stage::kAwake;
    return anything_to_do ? 0 : BeginIdle(requests_in_flight);
  }
  // It has entered, and `came` says whether a descriptor's watch has run. How long it is to sleep
  // when it enters again; kOver: the next turn may begin.
  int64_t Next(bool came) { return stage_ == Stage::kAwake ? kOver : Advance(came); }
  // `who` had work since the wait ended, as in WaitOutcome::ready.
  void HadWork(uint64_t who) { ready_ |= who; }

  PollExplanation Explain() const;
  // Null unless waits are traced. Holds those that a policy planned.
  const WaitTrace* trace() const { return trace_.get(); }

 private:
  static constexpr int64_t kForever = PollPolicy::kForever;
  // What the thread does about the kernel before Next.
  enum class Stage { kAwake, kDoze, kLook, kProbe, kSleep };

  void MeasureSleeping();
  void PassOnSleepCost();
  void Learn();
  int64_t BeginIdle(bool requests_in_flight);
  int64_t Advance(bool came);
  int64_t GoToSleep(Stage stage, int64_t timeout_ns = kForever);
  int64_t Doze(Stage stage, int64_t timeout_ns);
  int64_t LookOrSleep();
  bool PollsForHeld() { return plan_.may_hold && owner_.HoldsSignals(); }
  int64_t MeasuredSleep();
  void EndDoze();
  int64_t EndWait(int64_t most_ns = kForever);
  bool Spin(bool hit);
  void OfferCpu(int64_t looked_ns);

  Owner& owner_;
  Mailbox& mailbox_;
  IoThreadStats& stats_;
  std::unique_ptr<PollPolicy> policy_;  // null: never polls, sleeps at once
  const std::unique_ptr<WaitTrace> trace_;
  SleepMeter sleep_meter_{{}};
  int64_t looked_ns_ = 0;  // since it last offered its CPU
  int times_taken_ = 0;    // in a row
  Stage stage_ = Stage::kAwake;
  WaitPlan plan_;
  bool came_ = false;          // something, before the sleep or in the doze
  int64_t doze_ns_ = 0;        // how long the doze was to be
  int64_t doze_start_ns_ = 0;  // and when it began
  int64_t sleep_cpu_ns_ = 0;   // CPU time when a measured sleep began; 0: it is not measured
  WaitOutcome wait_;           // the last one
  bool to_learn_ = false;      // from it
  uint64_t ready_ = 0;         // who had work since it ended, as in WaitOutcome
};

}  // namespace ringside
