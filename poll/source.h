// What an I/O thread serves: rings and the like that other parties fill, where a look costs a
// load and no system call.
//
// Threads: everything here is called on the I/O thread the source is attached to.
// Ownership: sources and hooks belong to their owners and outlive their being attached or queued.
#pragma once

#include <cstdint>

#include "poll/uring.h"

namespace ringside {

class IoThread;

// The order of a turn: completions are taken and signalled before new work is.
enum class Phase { kComplete, kTake };

class Source : private EventfdListener {
 public:
  // `wake_fd`: an eventfd whose every write ends the thread's sleep. Nobody else reads it while the
  // source is attached. kWhileWanted: the other party writes it whether it was asked to or not, and
  // EnableNotify and DisableNotify call IoThread::Want.
  explicit Source(int wake_fd, Watching watching = Watching::kAlways)
      : wake_fd_(wake_fd), watching_(watching) {}
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // One look at memory.
  virtual bool HasWork() = 0;
  // Does what there is, but no more than a ring's worth: others wait. Only after HasWork.
  virtual void Run() = 0;
  // Asks the other party to signal wake_fd from now on, or not to bother. Stores only, but for
  // Want: whoever enables issues the fence and looks again before it sleeps.
  // Notifications are on at first.
  virtual void EnableNotify() = 0;
  virtual void DisableNotify() = 0;

  int wake_fd() const { return wake_fd_; }

  // The other party has signalled, or has work without a signal: a source that was parked is looked
  // at again.
  void Written() override;

 private:
  friend class IoThread;

  const int wake_fd_;
  const Watching watching_;
  IoThread* io_thread_ = nullptr;  // it is attached to
  Phase phase_ = Phase::kComplete;
  bool notify_on_ = true;
  bool parked_ = false;
  uint64_t last_work_turn_ = 0;
  uint64_t ready_bit_ = 0;  // in WaitOutcome::ready
  Source* next_ = nullptr;
};

// Something to do once at the end of the running turn, however often it was asked for in it.
class Hook {
 public:
  virtual void Run() = 0;
  // From when it was asked for until it runs.
  bool queued() const { return queued_; }

 protected:
  ~Hook() = default;

 private:
  friend class IoThread;
  bool queued_ = false;
  Hook* next_ = nullptr;
};

// A signal to the other party that could be sent and is held: not while the thread sleeps.
class HeldSignal {
 public:
  // Now and then, once per turn at the least: sends or drops it if it is time.
  virtual void Look(int64_t now_ns) = 0;
  // Sends it, or drops it if nobody wants it any more.
  virtual void Release() = 0;
  bool held() const { return held_; }

 protected:
  ~HeldSignal() = default;

 private:
  friend class IoThread;
  bool held_ = false;
  HeldSignal* next_held_ = nullptr;
};

// A Hook that calls a member function: HookTo<Queue, &Queue::Publish> hook{*this};
template <typename Owner, void (Owner::*Method)()>
class HookTo final : public Hook {
 public:
  explicit HookTo(Owner& owner) : owner_(owner) {}
  void Run() override { (owner_.*Method)(); }

 private:
  Owner& owner_;
};

}  // namespace ringside
