// An I/O thread: sleeps in its waiter until a watched descriptor is ready or another thread posts a
// task, and runs what has become due. Everything attached to it runs on it alone, so devices and
// consoles need no locks among themselves.
//
// Threads: Post is for any thread; all else is for the I/O thread itself (from a task or a watch).
// Ownership: tasks and watches belong to their callers and must outlive their use here; all lists
// are intrusive, so nothing is allocated after the start. The I/O thread outlives every Post into
// it, also one that is just returning.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <thread>

#include "absl/status/statusor.h"
#include "base/fd.h"

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

class IoThread {
 public:
  static absl::StatusOr<std::unique_ptr<IoThread>> Start(const std::string& name);
  // Runs what was posted before, then ends the thread and joins it.
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Any thread. Costs no system call while the I/O thread is awake.
  void Post(Task& task);

  // The I/O thread only.
  void Arm(FdWatch& watch);
  void Disarm(FdWatch& watch);

 private:
  IoThread(UniqueFd epoll, EventFd wake);
  void Loop();
  void RunPosted();
  void RunAlwaysReady();
  void Sleep();

  const UniqueFd epoll_;
  const EventFd wake_;
  // Newest first. Written by any thread.
  std::atomic<Task*> mailbox_{nullptr};
  // True from just before the last look at the mailbox until the waiter has returned.
  std::atomic<bool> sleeping_{false};
  // Descriptors that epoll refuses because they never block (files, /dev/null), oldest first.
  FdWatch* always_ready_ = nullptr;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringside
