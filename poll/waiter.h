// What an I/O thread sleeps in, and what its requests and wake-ups come through: an io_uring
// (poll/uring_waiter.h), or an epoll where io_uring is forbidden (poll/epoll_waiter.h).
//
// Threads: it is made and used on its I/O thread.
// Ownership: watches and listeners belong to their callers, and stay while they are watched.
#pragma once

#include <cstdint>
#include <sys/epoll.h>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "poll/timers.h"
#include "poll/uring.h"

namespace ringside {

// Interest in one descriptor, which has no other watch. One-shot: after Ready it is silent until
// armed again, which is also how a reader pushes back. Ready may be called once too often and must
// not block.
class FdWatch {
 public:
  FdWatch(int fd, uint32_t events) : fd_(fd), events_(events) {}
  virtual ~FdWatch() = default;
  virtual void Ready() = 0;

 private:
  friend class Waiter;
  friend class IoThread;
  void Expired(int64_t /*now_ns*/) { Ready(); }

  const int fd_;
  const uint32_t events_;  // EPOLLIN or EPOLLOUT
  bool added_ = false;
  FdWatch* next_always_ready_ = nullptr;
  bool in_always_ready_ = false;
  TimerTo<FdWatch, &FdWatch::Expired> retry_{*this};
};

class Waiter {
 public:
  static constexpr int64_t kForever = Uring::kForever;

  virtual ~Waiter() = default;

  // Runs what has completed, and says whether a request has. Makes no system call, unless the
  // kernel holds completions back.
  virtual bool Reap() = 0;
  // A look at memory: whether Reap would find something.
  virtual bool HasCompletions() const = 0;
  // Passes to the kernel what is queued for it and sleeps until something comes, or ns, the time
  // is over: in one system call, and in none if nothing is queued and the time is 0. Then it lets
  // one descriptor's watch run. Whether one did.
  virtual bool Enter(int64_t sleep_ns) = 0;
  // Lets a watch run if its descriptor is ready, now and then: where that takes a system call.
  virtual bool LookAtDescriptors() { return false; }
  // Every write to the eventfd ends the sleep and is told to the listener; nobody else reads it.
  // Unwatch before it is closed.
  virtual absl::Status Watch(int eventfd, EventfdListener& listener, Watching watching) = 0;
  virtual void Unwatch(int eventfd) = 0;
  // As Uring::Want, where an unwanted write costs something.
  virtual void Want(int /*eventfd*/, bool /*wanted*/) {}
  virtual void WantNow() {}
  // Null: there is none.
  virtual Uring* uring() { return nullptr; }

  // False: the kernel cannot watch it now, for want of memory or of watches (epoll_ctl(2)).
  bool Arm(FdWatch& watch);
  void Disarm(FdWatch& watch);
  // Whether a watch is to run, as far as is known without a system call.
  bool HasReady() const { return always_ready_ != nullptr || descriptor_ready_; }
  // Runs one of a descriptor that is always ready: whatever Ready arms or destroys, others and the
  // mailbox come first.
  void RunAlwaysReady() {
    if (always_ready_ != nullptr) RunFirstAlwaysReady();
  }

 protected:
  explicit Waiter(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  static absl::StatusOr<UniqueFd> CreateEpoll();
  const UniqueFd& epoll() const { return epoll_; }
  absl::Status AddToEpoll(int eventfd, EventfdListener& listener);
  // Whether there was one.
  bool RunOneWatch(int64_t timeout_ns);

  bool descriptor_ready_ = false;  // perhaps: something has told so

 private:
  void RunFirstAlwaysReady();
  int WaitForEpoll(epoll_event& event, int64_t timeout_ns) const;

  const UniqueFd epoll_;
  // Descriptors that epoll refuses because they never block (files, /dev/null), oldest first.
  FdWatch* always_ready_ = nullptr;
};

}  // namespace ringside
