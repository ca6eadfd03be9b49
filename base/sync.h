// Locks and waiting. The standard's, dressed with the annotations that clang's thread-safety
// analysis checks. Not Abseil's: Debian's is built without what ThreadSanitizer needs to see them.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace ringside {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Of a clock that nobody sets.
using Deadline = std::chrono::steady_clock::time_point;
// `limit` may be infinite.
inline Deadline DeadlineIn(absl::Duration limit) {
  constexpr absl::Duration kCentury = absl::Hours(24 * 365 * 100);  // more would overflow the clock
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(limit, kCentury));
}

// Something that happens once. Who has seen it sees all that was written before Notify.
class Event {
 public:
  void Notify() {
    // Under the lock to the end: a waiter may destroy the event as soon as it has seen it.
    const std::lock_guard lock(mutex_);
    notified_ = true;
    changed_.notify_all();
  }
  bool HasBeenNotified() const {
    const std::lock_guard lock(mutex_);
    return notified_;
  }
  void Wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return notified_; });
  }
  // Returns whether it has happened.
  bool WaitFor(absl::Duration limit) const { return WaitUntil(DeadlineIn(limit)); }
  bool WaitUntil(Deadline deadline) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return notified_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool notified_ = false;
};

}  // namespace ringside
