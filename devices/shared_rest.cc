#include "devices/shared_rest.h"

#include <utility>

namespace ringside {

void SharedRest::Begin(Holder holder, Task& done) {
  const MutexLock order(order_);
  bool rests;
  {
    const MutexLock lock(mutex_);
    const bool has_begun = AnyoneWants();
    Hold& hold = holds_[static_cast<size_t>(holder)];
    hold.wanted = true;
    rests = rests_;
    if (!rests) hold.waiting = &done;
    if (has_begun && !rests) return;
    if (!rests) awaited_ = queues_.size() + 1;
  }
  if (rests) return done.Run();
  for (const auto& queue : queues_) queue->Pause();
  QueueRests();
}

void SharedRest::End(Holder holder) {
  const MutexLock order(order_);
  Task* waiting;
  bool goes_on;
  {
    const MutexLock lock(mutex_);
    Hold& hold = holds_[static_cast<size_t>(holder)];
    hold.wanted = false;
    waiting = std::exchange(hold.waiting, nullptr);
    goes_on = !AnyoneWants();
    if (goes_on) rests_ = false;
  }
  if (goes_on) {
    for (const auto& queue : queues_) queue->Resume();
  }
  if (waiting != nullptr) waiting->Run();
}

// Whoever is told reads what the queues have come to: the lock orders it behind all of them. And it
// is told under the lock, so that no End returns, and its task goes, while that is about to run.
void SharedRest::QueueRests() {
  const MutexLock lock(mutex_);
  if (--awaited_ > 0) return;
  rests_ = AnyoneWants();
  for (Hold& hold : holds_) {
    if (Task* const task = std::exchange(hold.waiting, nullptr); task != nullptr) task->Run();
  }
}

}  // namespace ringside
