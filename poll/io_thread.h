// An I/O thread: looks after sources (rings that others fill), descriptors and tasks, one turn
// after the other, and sleeps when there is nothing to do. Everything attached to it runs on it
// alone, so devices and consoles need no locks among themselves.
//
// A turn: completions are reaped and kComplete sources run; AtPublish hooks make results visible
// and signal; kSubmit sources take new work; AtSubmit hooks pass it on; what that completed already
// is published, unless this turn has published before; then, unless something is left, the thread
// looks at all rings for as long as its policy says, and sleeps, in its io_uring or in epoll where
// that is forbidden. So completions are signalled before new work is taken, new work is submitted
// before anyone waits, and a queue signals once a turn at most.
//
// A source that stays silent while others work is parked: it is asked to signal, and looked at no
// more until it does. So a hundred idle queues cost a busy one nothing.
//
// Threads: Post and stats are for any thread; all else is for the I/O thread itself (from a task, a
// watch, a source or a hook).
// Ownership: tasks, watches, sources and hooks belong to their callers and must outlive their use
// here; all lists are intrusive, so nothing is allocated in the steady state. The I/O thread
// outlives every Post into it, also one that is just returning.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <thread>

#include "absl/status/statusor.h"
#include "base/counter.h"
#include "base/fd.h"
#include "poll/explanation.h"
#include "poll/policy.h"
#include "poll/sleep_meter.h"
#include "poll/source.h"
#include "poll/uring.h"
#include "poll/wait_trace.h"

namespace ringside {

// Work for an I/O thread. One that is already queued is not queued again, so a burst of posts costs
// one run; it may be posted again from the moment Run is entered.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;

 private:
  friend class IoThread;
  std::atomic<bool> queued_{false};
  Task* next_ = nullptr;
};

// A Task from a callable: TaskOf stop([this] { ... });
template <typename Function>
class TaskOf final : public Task {
 public:
  explicit TaskOf(Function function) : function_(std::move(function)) {}
  void Run() override { function_(); }

 private:
  Function function_;
};

// A Task that calls a member function: TaskTo<Disk, &Disk::Start> start{*this};
template <typename Owner, void (Owner::*Method)()>
class TaskTo final : public Task {
 public:
  explicit TaskTo(Owner& owner) : owner_(owner) {}
  void Run() override { (owner_.*Method)(); }

 private:
  Owner& owner_;
};

// Interest in one descriptor, which has no other watch. One-shot: after Ready it is silent until
// armed again, which is also how a reader pushes back. Ready may be called once too often and must
// not block.
class FdWatch {
 public:
  FdWatch(int fd, uint32_t events) : fd_(fd), events_(events) {}
  virtual ~FdWatch() = default;
  virtual void Ready() = 0;

 private:
  friend class IoThread;
  const int fd_;
  const uint32_t events_;  // EPOLLIN or EPOLLOUT
  bool added_ = false;
  FdWatch* next_always_ready_ = nullptr;
  bool in_always_ready_ = false;
};

// When in a turn results are shown and signalled.
enum class Signalling {
  kEarly,    // completions before new work is taken, so that the guest goes on meanwhile
  kBatched,  // once new work is under way, together with what it gave already
};

const char* SignallingName(Signalling signalling);

struct IoThreadTuning {
  PollConfig poll;
  Signalling signalling = Signalling::kEarly;
  bool trace_waits = false;  // for waits()
};

struct IoThreadStats {
  Counter turns;
  Counter spins;           // waits that began by looking
  Counter spin_hits;       // of those, the ones that saw something come
  Counter spin_used_ns;    // time spent looking when something came
  Counter spin_wasted_ns;  // time spent looking when nothing did
  Counter spin_limit_ns;   // no count: for how long the last wait would look
  Counter dozes;           // waits that began with a sleep by a timer
  Counter doze_ends;       // of those, the ones that the timer ended
  Counter preempted;       // looks given up since another thread waited for the CPU
  Counter sleeps;          // dozes too
  Counter wake_ups;        // as many, or one less while it sleeps
  Counter wake_ns;         // no count: what waking by an interrupt takes
  Counter kick_ns;         // no count: what waking by another thread takes
  Counter sleep_cpu_ns;    // no count: the CPU time of a sleep
  Counter parked;          // sources that fell silent and are no longer looked at
  Counter unparked;
};

class IoThread {
 public:
  enum class Waiter { kEpoll, kUring };

  // kUring: FailedPrecondition where io_uring cannot be had.
  static absl::StatusOr<std::unique_ptr<IoThread>> Start(const std::string& name,
                                                         Waiter waiter = Waiter::kEpoll,
                                                         const IoThreadTuning& tuning = {});
  // Runs what was posted before, then ends the thread and joins it. Nothing is attached any more.
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Any thread. Costs no system call while the I/O thread is awake.
  void Post(Task& task);
  const IoThreadStats& stats() const { return stats_; }

  // The I/O thread only.
  void SetPoll(const PollConfig& poll);
  absl::Status Attach(Source& source, Phase phase);
  void Detach(Source& source);
  void AtPublish(Hook& hook) { publish_hooks_.Add(hook); }
  void AtSubmit(Hook& hook) { submit_hooks_.Add(hook); }
  // Before all of those.
  void BeforeSubmit(Hook& hook) { submit_hooks_.AddFirst(hook); }
  void Arm(FdWatch& watch);
  void Disarm(FdWatch& watch);
  // Requests that are on their way to where the bytes are: what the thread waits for depends on it.
  void RequestBegins() { ++in_flight_; }
  void RequestEnds() { --in_flight_; }
  // Whether a source of new work other than `one` has had some lately, so that each turn should be
  // short. A look at each of them.
  bool IsShared(const Source* one) const;
  // Null unless they are traced. Holds those that a policy planned.
  const WaitTrace* waits() const { return wait_trace_.get(); }
  // How it waits and why. That of a thread that never looks is empty.
  PollExplanation Explain() const;
  // Null if the thread sleeps in epoll. Its pointer may be read, not used, by any thread.
  Uring* uring() { return uring_.get(); }
  const Uring* uring() const { return uring_.get(); }

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
    void AddFirst(Hook& hook);
    // Whether there were any.
    bool Run();
    bool empty() const { return first_ == nullptr; }

   private:
    Hook* first_ = nullptr;
    Hook** end_ = &first_;
  };
  // epoll_ on the ring.
  class EpollListener final : public EventfdListener {
   public:
    void Written() override { fired = true; }
    bool fired = false;  // epoll_ may have something ready
  };
  friend class Source;
  // In epoll's data: the address of a source, and this; else that of an FdWatch, or 0 for wake_.
  static constexpr uint64_t kSourceTag = 1;
  static constexpr int64_t kForever = PollPolicy::kForever;
  static constexpr uint64_t kCompletionRing = 1;  // in WaitOutcome::ready

  IoThread(UniqueFd epoll, EventFd wake, const IoThreadTuning& tuning);
  absl::Status StartUring();

  void Loop();
  void RunSources(Phase phase);
  void RunPosted();
  void RunAlwaysReady();
  void AddSource(Source& source);
  void RemoveSource(Source& source);
  uint64_t NextReadyBit();
  void Quiet(Source& source);
  bool AskForSignal(Source& source);
  void Park(Source& source);
  void Unpark(Source& source);

  void MeasureSleeping();
  void StartPolicy();
  void PassOnSleepCost();
  void WaitForWork();
  void Learn();
  void EndSleep(int64_t most_ns = kForever);
  bool Doze(int64_t doze_ns);
  bool Spin(const WaitPlan& plan);
  void OfferCpu(int64_t looked_ns);
  void QuietSources();
  void MeasuredSleep();
  bool Sleep(int64_t timeout_ns = kForever);
  void PrepareToSleep();
  bool HasWork();
  void StayAwake();
  bool LookAtEpoll();
  bool RunOneWatch(int64_t timeout_ns);
  int WaitForEpoll(epoll_event& event, int64_t timeout_ns) const;

  const UniqueFd epoll_;
  const EventFd wake_;
  const Signalling signalling_;
  std::unique_ptr<PollPolicy> policy_;  // null: never looks, sleeps at once
  std::unique_ptr<Uring> uring_;
  EpollListener epoll_listener_;  // with a ring
  unsigned epoll_idle_ = 0;       // without: turns and spins that left epoll_ alone
  // Newest first. Written by any thread.
  std::atomic<Task*> mailbox_{nullptr};
  // True from just before the last look at the mailbox until the waiter has returned.
  std::atomic<bool> sleeping_{false};
  std::atomic<int64_t> kicked_ns_{0};  // when a Post began to end this sleep
  // Descriptors that epoll refuses because they never block (files, /dev/null), oldest first.
  FdWatch* always_ready_ = nullptr;
  Source* sources_[2] = {};        // that are looked at, by Phase; the parked ones are in no list
  Source* next_source_ = nullptr;  // of the loop that is running one
  HookList publish_hooks_;
  HookList submit_hooks_;
  uint64_t in_flight_ = 0;
  SleepMeter sleep_meter_{{}};
  const std::unique_ptr<WaitTrace> wait_trace_;  // null: none is asked for
  int64_t looked_ns_ = 0;                        // since it last offered its CPU
  int times_taken_ = 0;                          // in a row
  WaitOutcome wait_;                             // the last one
  bool to_learn_ = false;                        // from it
  uint64_t ready_ = 0;                           // who had work since it ended, as in WaitOutcome
  uint64_t next_ready_bit_ = kCompletionRing;
  IoThreadStats stats_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringside
