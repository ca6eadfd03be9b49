#include "file/inline_server.h"

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
long Transfer(int fd, bool read, std::span<const iovec> vectors, uint64_t offset, int flags) {
  if (vectors.size() == 1 && flags == 0) {
    return syscall(read ? SYS_pread64 : SYS_pwrite64, fd, vectors[0].iov_base, vectors[0].iov_len,
                   offset);
  }
  // The 0 is the upper half of the offset, which on 64-bit systems is all in the lower.
  return syscall(read ? SYS_preadv2 : SYS_pwritev2, fd, vectors.data(), vectors.size(), offset, 0L,
                 flags);
}

}  // namespace

bool InlineServer::MayServe(bool write, bool durable) const {
  switch (target_.inline_io) {
    case InlineIo::kNever:
      return false;
    case InlineIo::kCached:
      return !write && target_.has_nowait.load(std::memory_order_relaxed);
    case InlineIo::kMemory:
      // What is to be durable is the engine's, as with all file systems.
      return !write || (!durable && !target_.read_only &&
                        target_.allocating.load(std::memory_order_relaxed) == 0);
  }
  return false;
}

bool InlineServer::MayServe(const BlockRequest& request) const {
  const bool write = request.op == BlockOp::kWrite;
  if ((!write && request.op != BlockOp::kRead) || !MayServe(write, request.durable)) return false;
  if (request.segments.size() > kMostSegments) return false;
  const uint64_t total = TotalLength(request.segments);
  const uint64_t size = target_.size;
  return total != 0 && total <= kMostBytes && total <= size && request.offset <= size - total;
}

uint64_t InlineServer::Serve(BlockRequest& request) {
  if (Skips()) return 0;
  const std::span<const Segment> segments = request.segments;
  std::array<iovec, kMostSegments> vectors;
  uint64_t total = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    vectors[i] = {.iov_base = segments[i].host, .iov_len = segments[i].length};
    total += segments[i].length;
  }
  const bool read = request.op == BlockOp::kRead;
  const int64_t moved = Try(read, std::span(vectors).first(segments.size()), request.offset);
  if (moved < 0 || static_cast<uint64_t>(moved) != total) {
    Missed();
    return 0;
  }
  to_skip_ = 0;
  counters_.requests[static_cast<size_t>(request.op)].Add();
  (read ? counters_.bytes_read : counters_.bytes_written).Add(total);
  counters_.served_inline.Add();
  request.result = 0;
  return total;
}

int64_t InlineServer::Perform(const FileStep& step) {
  const bool write = step.kind == FileStep::Kind::kWrite;
  if (!MayServe(write, step.flags != 0) || Skips()) return kNotHere;
  const int64_t result = Try(!write, {step.vectors, step.vector_count}, step.offset);
  if (result == -EAGAIN || result == -EOPNOTSUPP) {
    Missed();
    return kNotHere;
  }
  to_skip_ = 0;
  return result;
}

// Its result, or -errno.
int64_t InlineServer::Try(bool read, std::span<const iovec> vectors, uint64_t offset) {
  const int flags = target_.inline_io == InlineIo::kCached ? RWF_NOWAIT : 0;
  const long moved = Transfer(target_.fd.get(), read, vectors, offset, flags);
  if (moved >= 0) return moved;
  if (flags != 0 && errno == EOPNOTSUPP) {
    target_.has_nowait.store(false, std::memory_order_relaxed);
  }
  return -errno;
}

bool InlineServer::Skips() {
  if (skipped_ < to_skip_) {
    ++skipped_;
    return true;
  }
  skipped_ = 0;
  return false;
}

void InlineServer::Missed() {
  if (target_.inline_io == InlineIo::kCached) to_skip_ = std::min(2 * to_skip_ + 1, kMostSkipped);
}

}  // namespace ringside
