#include "file/file_op.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

namespace ringside {
namespace {

// Written where zeroes cannot be made otherwise; never written to. Untouched, it takes no memory.
constexpr size_t kZeroesSize = size_t{64} << 10;
alignas(BouncePool::kAlignment) std::byte zeroes[kZeroesSize];

bool IsUnsupported(int64_t result) {
  return result == -EOPNOTSUPP || result == -ENOSYS || result == -ENODEV || result == -ENOTTY;
}

}  // namespace

int64_t PerformStep(int fd, const FileStep& step) {
  const auto offset = static_cast<off_t>(step.offset);
  const auto count = static_cast<int>(step.vector_count);
  ssize_t result = 0;
  switch (step.kind) {
    case FileStep::Kind::kRead:
      result = count == 1 ? pread(fd, step.vectors->iov_base, step.vectors->iov_len, offset)
                          : preadv(fd, step.vectors, count, offset);
      break;
    case FileStep::Kind::kWrite:
      result = count == 1 && step.flags == 0
                   ? pwrite(fd, step.vectors->iov_base, step.vectors->iov_len, offset)
                   : pwritev2(fd, step.vectors, count, offset, step.flags);
      break;
    case FileStep::Kind::kSync:
      result = fdatasync(fd);
      break;
    case FileStep::Kind::kAllocate:
      result = fallocate(fd, step.flags, offset, static_cast<off_t>(step.length));
      break;
  }
  return result < 0 ? -errno : result;
}

FileOp::Next FileOp::Start(BlockRequest& request, FileOpContext& context) {
  request_ = &request;
  context_ = &context;
  result_ = 0;
  bounced_ = writes_zeroes_ = false;
  total_ = done_ = 0;
  cursor_ = {};
  context.counters.requests[static_cast<size_t>(request.op)].Add();
  switch (request.op) {
    case BlockOp::kRead:
    case BlockOp::kWrite:
      return StartTransfer();
    case BlockOp::kFlush:
      return StartFlush();
    case BlockOp::kDiscard:
    case BlockOp::kWriteZeroes:
      return StartAllocation();
  }
  return Done(-EINVAL);
}

FileOp::Next FileOp::StartTransfer() {
  const FileTarget& target = context_->target;
  const bool write = request_->op == BlockOp::kWrite;
  bool taken = true;
  for (const Segment& segment : request_->segments) {
    total_ += segment.length;  // cannot wrap: 2^32 of 2^32 would be needed
    taken = taken && DirectTakes(segment);
  }
  const uint64_t size = target.size;
  if (total_ > size || request_->offset > size - total_) return Done(-EINVAL);
  if (write && target.read_only) return Done(-EROFS);
  if (total_ == 0) return Done(0);
  if (((request_->offset | total_) & (target.offset_alignment - 1)) != 0) return Done(-EINVAL);
  step_.kind = write ? FileStep::Kind::kWrite : FileStep::Kind::kRead;
  step_.flags = write && request_->durable && !target.ignore_flushes ? RWF_DSYNC : 0;
  if (taken) return PrepareTransfer();
  bounced_ = true;
  context_->counters.bounced.Add();
  return Resume();
}

FileOp::Next FileOp::Resume() {
  bounce_ = context_->memory.bounce.Take();
  if (bounce_ != nullptr) return PrepareTransfer();
  return context_->memory.bounce.any_taken() ? Next::kWait : Done(-ENOMEM);
}

FileOp::Next FileOp::StartFlush() {
  const FileTarget& target = context_->target;
  if (target.read_only || target.ignore_flushes) return Done(0);
  return Sync();
}

FileOp::Next FileOp::StartAllocation() {
  const FileTarget& target = context_->target;
  total_ = request_->length;
  const uint64_t size = target.size;
  if (total_ > size || request_->offset > size - total_) return Done(-EINVAL);
  if (target.read_only) return Done(-EROFS);
  if (total_ == 0) return Done(0);
  const bool punch = request_->op == BlockOp::kDiscard || request_->unmap;
  return Allocate(punch ? Zeroing::kPunch : Zeroing::kZeroRange);
}

// The first way from `how` on that is not known to be missing.
FileOp::Next FileOp::Allocate(Zeroing how) {
  const FileTarget& target = context_->target;
  const bool discard = request_->op == BlockOp::kDiscard;
  if (how == Zeroing::kPunch && !target.has_punch_hole.load(std::memory_order_relaxed)) {
    if (discard) return Done(0);  // a hint: the device is free not to take it
    how = Zeroing::kZeroRange;
  }
  if (how == Zeroing::kZeroRange && !target.has_zero_range.load(std::memory_order_relaxed)) {
    how = Zeroing::kWrite;
  }
  zeroing_ = how;
  if (how == Zeroing::kWrite) {
    writes_zeroes_ = true;
    step_.kind = FileStep::Kind::kWrite;
    step_.flags = request_->durable && !target.ignore_flushes ? RWF_DSYNC : 0;
    return PrepareTransfer();
  }
  step_.kind = FileStep::Kind::kAllocate;
  step_.flags =
      FALLOC_FL_KEEP_SIZE | (how == Zeroing::kPunch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
  step_.offset = request_->offset + done_;
  step_.length = std::min(total_ - done_, kMostAllocated);
  return Next::kStep;
}

FileOp::Next FileOp::Advance(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    context_->counters.retries.Add();
    return Next::kStep;
  }
  switch (step_.kind) {
    case FileStep::Kind::kRead:
    case FileStep::Kind::kWrite:
      return AdvanceTransfer(result);
    case FileStep::Kind::kSync:
      return AdvanceSync(result);
    case FileStep::Kind::kAllocate:
      return AdvanceAllocation(result);
  }
  return Done(-EIO);
}

FileOp::Next FileOp::AdvanceTransfer(int64_t result) {
  if (result < 0) {
    // A write that flushes itself may have been told of what was lost before it.
    if (result == -EIO && step_.flags == RWF_DSYNC && writing()) NoteLost(result);
    return Done(static_cast<int>(result));
  }
  auto count = static_cast<uint64_t>(result);
  if (count > step_.length) return Done(-EIO);
  const bool is_short = count < step_.length;
  if (!writing()) {
    if (bounced_) CopyBounced(count);
    MoveBy(count);
    // O_DIRECT stops in the middle of a block at the end of the file only.
    const bool ended = count == 0 || (done_ & (context_->target.offset_alignment - 1)) != 0;
    if (ended) ZeroTheRest(step_.length - count);
    if (done_ == total_) return Done(0);
    if (ended) return PrepareTransfer();
  } else {
    // What O_DIRECT has written of a block is written again with the rest of it.
    const bool some = count != 0;
    count &= ~uint64_t{context_->target.offset_alignment - 1};
    if (count == 0) return Done(some ? -EIO : -ENOSPC);
    MoveBy(count);
    if (done_ == total_) return Done(step_.flags == RWF_DSYNC ? LostBefore() : 0);
  }
  if (is_short) context_->counters.short_transfers.Add();
  return PrepareTransfer();
}

FileOp::Next FileOp::AdvanceSync(int64_t result) {
  if (result < 0) {
    NoteLost(result);
    return Done(static_cast<int>(result));
  }
  return Done(LostBefore());
}

// What another flush has been told, by a kernel that tells once; this one may have lost it.
int FileOp::LostBefore() const {
  return context_->target.flush_error.load(std::memory_order_relaxed);
}

// Of the page cache, which keeps nothing of what it could not write.
void FileOp::NoteLost(int64_t error) {
  FileTarget& target = context_->target;
  if (!target.direct) {
    target.flush_error.store(static_cast<int>(error), std::memory_order_relaxed);
  }
}

FileOp::Next FileOp::AdvanceAllocation(int64_t result) {
  if (result >= 0) {
    done_ += step_.length;
    return done_ < total_ ? Allocate(zeroing_) : SyncOrDone();
  }
  FileTarget& target = context_->target;
  const bool punch = zeroing_ == Zeroing::kPunch;
  if (IsUnsupported(result)) {
    (punch ? target.has_punch_hole : target.has_zero_range).store(false, std::memory_order_relaxed);
    return Allocate(zeroing_);
  }
  // A block device refuses ranges that are no multiple of its own blocks.
  if (result == -EINVAL && request_->op == BlockOp::kWriteZeroes) return Allocate(Zeroing::kWrite);
  return Done(static_cast<int>(result));
}

FileOp::Next FileOp::SyncOrDone() {
  return request_->durable && !context_->target.ignore_flushes ? Sync() : Done(0);
}

FileOp::Next FileOp::Sync() {
  if (const int error = LostBefore(); error != 0) return Done(error);
  step_.kind = FileStep::Kind::kSync;
  return Next::kStep;
}

FileOp::Next FileOp::Done(int result) {
  result_ = result;
  FileCounters& counters = context_->counters;
  if (result == -ECANCELED) {
    counters.requests[static_cast<size_t>(request_->op)].Subtract();  // somebody else may have it
  } else if (result < 0) {
    counters.errors.Add();
  } else if (request_->op == BlockOp::kRead) {
    counters.bytes_read.Add(total_);
  } else if (request_->op == BlockOp::kWrite) {
    counters.bytes_written.Add(total_);
  }
  return Next::kDone;
}

bool FileOp::Release() {
  const bool had_bounce = bounce_ != nullptr;
  if (had_bounce) context_->memory.bounce.Give(bounce_);
  bounce_ = nullptr;
  if (block_ != nullptr) context_->memory.vectors.Give(*block_);
  block_ = nullptr;
  return had_bounce;
}

bool FileOp::DirectTakes(const Segment& segment) const {
  const FileTarget& target = context_->target;
  return (reinterpret_cast<uintptr_t>(segment.host) & (target.memory_alignment - 1)) == 0 &&
         (segment.length & (target.offset_alignment - 1)) == 0;
}

FileOp::Next FileOp::PrepareTransfer() {
  step_.offset = request_->offset + done_;
  step_.vectors = inline_vectors_.data();
  if (writes_zeroes_) {
    PrepareZeroes();
  } else if (bounced_) {
    step_.length = std::min({total_ - done_, uint64_t{BouncePool::kBufferSize}, MostAStep()});
    step_.vector_count = 1;
    inline_vectors_[0] = {.iov_base = bounce_, .iov_len = step_.length};
  } else {
    PrepareVectors();
  }
  return Next::kStep;
}

// As late as can be: it takes time, and is for nothing if the request is recalled.
void FileOp::Load() {
  if (bounced_ && writing()) CopyBounced(step_.length);
}

void FileOp::PrepareVectors() {
  const std::span<const Segment> segments = request_->segments;
  size_t room = kInlineVectors;
  if (segments.size() - cursor_.segment > kInlineVectors) {
    if (block_ == nullptr) block_ = &context_->memory.vectors.Take();
    step_.vectors = block_->vectors.data();
    room = VectorBlock::kVectors;
  }
  step_.vector_count = 0;
  step_.length = 0;
  const uint64_t most = MostAStep();
  uint32_t skip = cursor_.skip;
  for (size_t i = cursor_.segment;
       i < segments.size() && step_.vector_count < room && step_.length < most; ++i) {
    const auto length =
        static_cast<uint32_t>(std::min<uint64_t>(segments[i].length - skip, most - step_.length));
    if (length != 0) {
      step_.vectors[step_.vector_count++] = {.iov_base = segments[i].host + skip,
                                             .iov_len = length};
    }
    step_.length += length;
    skip = 0;
  }
}

void FileOp::PrepareZeroes() {
  uint64_t left = std::min(total_ - done_, MostAStep());
  step_.vector_count = 0;
  step_.length = 0;
  for (iovec& vector : inline_vectors_) {
    const size_t length = std::min<uint64_t>(left, kZeroesSize);
    if (length == 0) break;
    vector = {.iov_base = zeroes, .iov_len = length};
    ++step_.vector_count;
    step_.length += length;
    left -= length;
  }
}

void FileOp::MoveBy(uint64_t count) {
  done_ += count;
  if (!writes_zeroes_) cursor_.Advance(request_->segments, count);
}

void FileOp::CopyBounced(uint64_t count) {
  if (writing()) {
    CopyFromSegments(request_->segments, cursor_, {bounce_, count});
  } else {
    CopyToSegments(request_->segments, cursor_, {bounce_, count});
  }
}

// Of the step: what is behind it the next steps find beyond the end, each in its turn.
void FileOp::ZeroTheRest(uint64_t count) {
  while (count > 0) {
    const Segment& segment = request_->segments[cursor_.segment];
    const uint64_t length = std::min<uint64_t>(count, segment.length - cursor_.skip);
    std::memset(segment.host + cursor_.skip, 0, length);
    count -= length;
    MoveBy(length);
  }
}

}  // namespace ringside
