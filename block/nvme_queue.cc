#include "block/nvme_queue.h"

#include "block/nvme_channel.h"

namespace ringside {

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
