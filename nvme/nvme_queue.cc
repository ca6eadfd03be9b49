#include "nvme/nvme_queue.h"

#include <algorithm>

#include "base/clock.h"
#include "nvme/nvme_channel.h"

namespace ringside {

bool NvmeQueue::AnyInFlightFor(uint32_t ticks, uint32_t now) const {
  return std::ranges::any_of(sent_at_, [&](const std::atomic<uint32_t>& sent_at) {
    const uint32_t sent = sent_at.load(std::memory_order_relaxed);
    return sent != 0 && now - sent >= ticks;
  });
}

bool NvmeQueue::OnIoThread(absl::FunctionRef<void(NvmeChannel&)> function) {
  bool there = false;
  AwaitedTask task([&] {
    there = channel_ != nullptr;
    if (there) function(*channel_);
  });
  {
    // The thread outlives its channels: as long as it is not closed it takes the task.
    const MutexLock lock(mutex_);
    if (io_thread_ == nullptr) return false;
    io_thread_->Post(task);
  }
  task.Wait();
  return there;
}

void EndSoon(NvmeWatch& watch, PciDevice& device) {
  constexpr int64_t kTimeNs = 500'000'000;
  constexpr int64_t kAnswersNs = kTimeNs + 250'000'000;  // so that it can still be cut off
  int64_t never = std::numeric_limits<int64_t>::max();
  watch.end_ns.compare_exchange_strong(never, MonotonicNs() + kTimeNs, std::memory_order_relaxed);
  device.Hurry(MonotonicNs() + kAnswersNs);
}

void NvmeQueue::Cancel() {
  EndSoon(parts_.watch, parts_.device);
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
