#include "devices/posted_work.h"

#include <utility>

namespace ringside {

// Under the lock: until the work has moved on, the thread it is posted to cannot be removed.
void PostedWork::Wake(const std::shared_ptr<Shared>& shared) {
  IoThread& io_thread = *shared->io_thread;
  io_thread.Begin([shared, &io_thread] { RunOn(shared, io_thread); });
}

void PostedWork::Post(std::function<void()> function) {
  const MutexLock lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->waiting.push_back(std::move(function));
  if (shared_->waiting.size() == 1) Wake(shared_);
}

void PostedWork::RunOn(const std::shared_ptr<Shared>& shared, const IoThread& io_thread) {
  const MutexLock running(shared->running);
  std::vector<std::function<void()>> functions;
  {
    const MutexLock lock(shared->mutex);
    if (shared->io_thread != &io_thread) {
      if (!shared->waiting.empty()) Wake(shared);
      return;
    }
    functions.swap(shared->waiting);
  }
  for (const auto& function : functions) function();
}

void PostedWork::MoveTo(IoThread& io_thread) {
  const MutexLock running(shared_->running);
  const MutexLock lock(shared_->mutex);
  shared_->io_thread = &io_thread;
}

bool PostedWork::RunsOn(const IoThread& io_thread) const {
  const MutexLock lock(shared_->mutex);
  return shared_->io_thread == &io_thread;
}

void PostedWork::Close() {
  std::vector<std::function<void()>> unused;  // whose ends may post
  const MutexLock running(shared_->running);
  const MutexLock lock(shared_->mutex);
  shared_->closed = true;
  unused.swap(shared_->waiting);
}

}  // namespace ringside
