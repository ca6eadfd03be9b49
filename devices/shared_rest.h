// The rest of a device's queues, for two who may want it at once: the machine that is paused, and
// whoever exchanges what is behind the device. They rest while either wants it.
//
// Threads: Begin and End from any, of each holder in turns; QueueRests with a queue's lock held.
// Ownership: the queues outlive it; a task stays until it has run, or End has returned. It must not
// call back.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "devices/queue_life.h"

namespace ringside {

class SharedRest {
 public:
  enum class Holder { kMachine, kExchange };

  explicit SharedRest(const std::vector<std::unique_ptr<QueueLife>>& queues) : queues_(queues) {}

  // As Pausable::Pause and Resume, for one of the holders.
  void Begin(Holder holder, Task& done);
  void End(Holder holder);
  // See QueueLife::Owner.
  void QueueRests();

 private:
  struct Hold {
    bool wanted = false;
    Task* waiting = nullptr;  // what is run when all rest
  };

  bool AnyoneWants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return holds_[0].wanted || holds_[1].wanted;
  }

  const std::vector<std::unique_ptr<QueueLife>>& queues_;
  // Held while queues are told, so that each is told in the order in which that was decided.
  Mutex order_ ABSL_ACQUIRED_BEFORE(mutex_);
  Mutex mutex_;
  std::array<Hold, 2> holds_ ABSL_GUARDED_BY(mutex_);
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;  // queues, and one more until all were told
  bool rests_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
