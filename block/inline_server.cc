#include "block/inline_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ringside {
namespace {

// Not by the C library's functions: as cancellation points these make four locked instructions a
// call more.
long Transfer(int fd, const BlockRequest& request, int flags) {
  const bool read = request.op == BlockOp::kRead;
  const std::span<const Segment> segments = request.segments;
  if (segments.size() == 1 && flags == 0) {
    return syscall(read ? SYS_pread64 : SYS_pwrite64, fd, segments[0].host,
                   size_t{segments[0].length}, request.offset);
  }
  std::array<iovec, InlineServer::kMostSegments> vectors;
  for (size_t i = 0; i < segments.size(); ++i) {
    vectors[i] = {.iov_base = segments[i].host, .iov_len = segments[i].length};
  }
  // The 0 is the upper half of the offset, which on 64-bit systems is all in the lower.
  return syscall(read ? SYS_preadv2 : SYS_pwritev2, fd, vectors.data(), segments.size(),
                 request.offset, 0L, flags);
}

}  // namespace

bool InlineServer::Takes(const BlockRequest& request) const {
  if (target_.inline_io == InlineIo::kNever) return false;
  if (request.op == BlockOp::kWrite) {
    // What is to be durable waits for the storage.
    if (request.durable || target_.read_only ||
        target_.allocating.load(std::memory_order_relaxed) != 0) {
      return false;
    }
  } else if (request.op != BlockOp::kRead) {
    return false;
  }
  if (target_.inline_io == InlineIo::kCached &&
      !target_.has_nowait(request.op).load(std::memory_order_relaxed))
    return false;
  if (request.segments.size() > kMostSegments) return false;
  const uint64_t total = TotalLength(request.segments);
  return total != 0 && total <= kMostBytes && total <= target_.size &&
         request.offset <= target_.size - total;
}

uint64_t InlineServer::Serve(BlockRequest& request) {
  const bool nowait = target_.inline_io == InlineIo::kCached;
  Misses& misses = misses_[request.op == BlockOp::kRead ? 0 : 1];
  if (misses.skipped < misses.to_skip) {
    ++misses.skipped;
    return 0;
  }
  misses.skipped = 0;
  const uint64_t total = TotalLength(request.segments);
  const long moved = Transfer(target_.fd.get(), request, nowait ? RWF_NOWAIT : 0);
  if (moved >= 0 && static_cast<uint64_t>(moved) == total) {
    misses.to_skip = 0;
    Count(request, total);
    request.result = 0;
    return total;
  }
  if (nowait) {
    if (moved < 0 && errno == EOPNOTSUPP) {
      target_.has_nowait(request.op).store(false, std::memory_order_relaxed);
    }
    misses.to_skip = std::min(2 * misses.to_skip + 1, kMostSkipped);
  }
  return 0;
}

void InlineServer::Count(const BlockRequest& request, uint64_t bytes) {
  counters_.requests[static_cast<size_t>(request.op)].Add();
  (request.op == BlockOp::kRead ? counters_.bytes_read : counters_.bytes_written).Add(bytes);
  counters_.served_inline.Add();
}

}  // namespace ringside
