// Tasks for an I/O thread: any thread posts them, the I/O thread runs them, and is woken for them
// if it sleeps.
//
// Threads: Post is for any thread; all else is for the I/O thread.
// Ownership: a task belongs to whoever posts it, and stays until it has run. The list goes through
// the tasks, so nothing is allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/fd.h"
#include "base/sync.h"
#include "poll/uring.h"

namespace ringside {

// Work for an I/O thread. One that is already queued is not queued again, so a burst of posts costs
// one run; it may be posted again from the moment Run is entered.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;

 private:
  friend class Mailbox;
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

// A TaskOf that somebody waits for.
template <typename Function>
class AwaitedTask final : public Task {
 public:
  explicit AwaitedTask(Function function) : function_(std::move(function)) {}
  void Run() override {
    function_();
    done_.Notify();
  }
  void Wait() const { done_.Wait(); }

 private:
  Function function_;
  Event done_;
};

// A Task on the heap that has itself until it has run, and all that it uses: whoever waits for it
// may give up.
template <typename Function>
class KeptTask final : public Task {
 public:
  static std::shared_ptr<KeptTask> New(Function function) {
    std::shared_ptr<KeptTask> task(new KeptTask(std::move(function)));
    task->self_ = task;
    return task;
  }
  void Run() override {
    const std::shared_ptr<KeptTask> self = std::move(self_);
    function_();
    done_.Notify();
  }
  const Event& done() const { return done_; }

 private:
  explicit KeptTask(Function function) : function_(std::move(function)) {}

  std::shared_ptr<KeptTask> self_;
  Function function_;
  Event done_;
};

class Mailbox final : public EventfdListener {
 public:
  explicit Mailbox(EventFd wake) : wake_(std::move(wake)) {}

  // Makes no system call while the I/O thread is awake.
  void Post(Task& task);

  // Its every write ends the thread's sleep. Nobody reads it.
  int wake_fd() const { return wake_.fd(); }
  bool empty() const { return newest_.load(std::memory_order_seq_cst) == nullptr; }
  // Runs what was posted, oldest first.
  void Run() {
    if (newest_.load(std::memory_order_relaxed) != nullptr) RunAll();  // saves a locked instruction
  }
  // From now on Post writes the eventfd. The thread looks at the mailbox once more before it
  // sleeps.
  void BeginSleep();
  void EndSleep() { sleeping_.store(false, std::memory_order_relaxed); }  // one write more at worst
  // When a Post began to end the last sleep; 0: none did.
  int64_t kicked_ns() const { return kicked_ns_.load(std::memory_order_relaxed); }

 private:
  void RunAll();
  void Written() override {}  // to end the sleep was all

  const EventFd wake_;
  std::atomic<Task*> newest_{nullptr};
  // True from just before the last look at the mailbox until the thread is awake again.
  std::atomic<bool> sleeping_{false};
  std::atomic<int64_t> kicked_ns_{0};
};

}  // namespace ringside
