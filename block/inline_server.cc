#include "block/inline_server.h"

#include <algorithm>
#include <cerrno>

namespace ringside {

bool InlineServer::Takes(const FileStep& step) const {
  const bool read = step.kind == FileStep::Kind::kRead;
  if (!read && step.kind != FileStep::Kind::kWrite) return false;
  // A flag means a durable write, which waits for the storage.
  if (step.flags != 0 || step.length > kMostBytes) return false;
  switch (target_.inline_io) {
    case InlineIo::kNever:
      return false;
    case InlineIo::kCached:
      return has_nowait(step).load(std::memory_order_relaxed);
    case InlineIo::kMemory:
      return read || target_.allocating.load(std::memory_order_relaxed) == 0;
  }
  return false;
}

uint64_t InlineServer::Perform(const FileStep& step) {
  if (target_.inline_io == InlineIo::kCached) return PerformCached(step);
  return static_cast<uint64_t>(std::max<int64_t>(0, PerformStep(target_.fd.get(), step)));
}

uint64_t InlineServer::PerformCached(const FileStep& step) {
  if (skipped_ < skip_) {
    ++skipped_;
    return 0;
  }
  skipped_ = 0;
  FileStep now = step;
  now.flags = RWF_NOWAIT;
  const int64_t result = PerformStep(target_.fd.get(), now);
  if (result > 0) {
    skip_ = 0;
    return static_cast<uint64_t>(result);
  }
  if (result == -EOPNOTSUPP) has_nowait(step).store(false, std::memory_order_relaxed);
  skip_ = std::min(2 * skip_ + 1, kMostSkipped);
  return 0;
}

}  // namespace ringside
