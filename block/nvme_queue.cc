#include "block/nvme_queue.h"

#include <algorithm>

#include "base/clock.h"
#include "block/nvme_channel.h"

namespace ringside {

bool NvmeQueue::AnyInFlightFor(uint32_t ticks, uint32_t now) const {
  return std::ranges::any_of(sent_at_, [&](const std::atomic<uint32_t>& sent_at) {
    const uint32_t sent = sent_at.load(std::memory_order_relaxed);
    return sent != 0 && now - sent >= ticks;
  });
}

bool NvmeQueue::OnIoThread(absl::FunctionRef<void(NvmeChannel&)> function) {
  Event over;
  bool there = false;
  TaskOf task([&] {
    there = channel_ != nullptr;
    if (there) function(*channel_);
    over.Notify();
  });
  {
    // The thread outlives its channels: as long as it is not closed it takes the task.
    const MutexLock lock(mutex_);
    if (io_thread_ == nullptr) return false;
    io_thread_->Post(task);
  }
  over.Wait();
  return there;
}

void NvmeQueue::Cancel() {
  // The first to say so counts, of all that share the controller.
  if (!parts_.watch.ends()) {
    parts_.watch.end_ns.store(MonotonicNs() + kCancelTimeNs, std::memory_order_relaxed);
  }
  parts_.device.Hurry(kCancelAnswer);
  // Release: whoever sees it sees the end of the time too.
  cancelled_.store(true, std::memory_order_release);
  parts_.control.Signal();
}

void NvmeQueue::Close() {
  channel_ = nullptr;
  // Before the lock is given back: afterwards the queue may be gone.
  const EventFd& control = parts_.control;
  {
    const MutexLock lock(mutex_);
    io_thread_ = nullptr;
  }
  control.Signal();
}

}  // namespace ringside
