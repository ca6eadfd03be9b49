// The logic that all engines share, with results a kernel gives on bad days. No system call.
#include "file/file_op.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <string>

#include "tests/support/block/test_disk.h"

namespace ringside {
namespace {

using testing::TestRequest;
using Next = FileOp::Next;
using Kind = FileStep::Kind;

// A file in memory; each step is done by hand, for as many bytes as wanted.
class FileOpTest : public ::testing::Test {
 protected:
  FileOpTest() {
    target_.size = 8 << 20;
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * 31 + i / 256);
  }
  void Direct(uint32_t unit) {
    target_.direct = true;
    target_.memory_alignment = target_.offset_alignment = unit;
  }
  // Transfers up to `limit` bytes of the step.
  int64_t Transfer(FileOp& op, uint64_t limit = ~uint64_t{0}) {
    op.Load();
    const FileStep& step = op.step();
    uint64_t moved = 0, sum = 0;
    for (unsigned i = 0; i < step.vector_count; ++i) {
      const iovec& vector = step.vectors[i];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(vector.iov_base) % target_.memory_alignment, 0u);
      EXPECT_EQ(vector.iov_len % target_.offset_alignment, 0u);
      sum += vector.iov_len;
      const uint64_t length = std::min<uint64_t>(vector.iov_len, limit - moved);
      char* place = content_.data() + step.offset + moved;
      if (step.kind == Kind::kRead) std::memcpy(vector.iov_base, place, length);
      if (step.kind == Kind::kWrite) std::memcpy(place, vector.iov_base, length);
      moved += length;
    }
    EXPECT_EQ(sum, step.length);
    return static_cast<int64_t>(moved);
  }
  // To the end, `limit` bytes a step; the steps taken.
  int Drive(FileOp& op, Next next, uint64_t limit) {
    int steps = 0;
    for (; next == Next::kStep && steps < 100000; ++steps) {
      next = op.Advance(Transfer(op, limit));
    }
    EXPECT_EQ(next, Next::kDone);
    op.Release();
    return steps;
  }

  FileTarget target_;
  FileCounters counters_;
  FileOpContext context_{.target = target_, .counters = counters_};
  FileOp op_;
  std::string content_ = std::string(8 << 20, '\0');
};

TEST_F(FileOpTest, ShortTransfersGoOnWhereTheyStopped) {
  for (const uint64_t limit : {1, 511, 512, 1000, 4097, 100000}) {
    for (const bool write : {false, true}) {
      TestRequest request(write ? BlockOp::kWrite : BlockOp::kRead, 1024, {512, 1, 4095, 8192});
      const std::string text(12800, write ? 'w' : '?');
      Drive(op_, op_.Start(request.Set(text), context_), limit);
      EXPECT_EQ(op_.result(), 0);
      EXPECT_EQ(request.Text(), content_.substr(1024, 12800)) << limit;
    }
  }
  EXPECT_GT(counters_.short_transfers.Get(), 0u);
}

TEST_F(FileOpTest, ShortTransfersThroughABounceBuffer) {
  Direct(512);
  for (const bool write : {false, true}) {
    TestRequest request(write ? BlockOp::kWrite : BlockOp::kRead, 1024,
                        {1, 4095, 700 << 10, 513, 511}, 3);
    request.Set(std::string(request.Text().size(), write ? 'w' : '?'));
    Drive(op_, op_.Start(request, context_), 100 * 512);
    EXPECT_EQ(op_.result(), 0);
    EXPECT_EQ(request.Text(), content_.substr(1024, request.Text().size()));
  }
  EXPECT_EQ(counters_.bounced.Get(), 2u);
}

TEST_F(FileOpTest, RepeatsAfterEintrAndEagain) {
  TestRequest request(BlockOp::kRead, 0, {4096});
  ASSERT_EQ(op_.Start(request, context_), Next::kStep);
  for (const int error : {EINTR, EAGAIN, EINTR}) {
    EXPECT_EQ(op_.Advance(-error), Next::kStep);
    EXPECT_EQ(op_.step().length, 4096u);
  }
  EXPECT_EQ(op_.Advance(4096), Next::kDone);
  EXPECT_EQ(op_.result(), 0);
  EXPECT_EQ(counters_.retries.Get(), 3u);
}

TEST_F(FileOpTest, AReadPastTheEndGetsZeroes) {
  TestRequest request(BlockOp::kRead, 0, {512, 4096, 512});
  op_.Start(request.Set(std::string(5120, '?')), context_);
  EXPECT_EQ(op_.Advance(Transfer(op_, 1000)), Next::kStep);
  EXPECT_EQ(op_.Advance(0), Next::kDone);
  EXPECT_EQ(op_.result(), 0);
  EXPECT_EQ(request.Text(), content_.substr(0, 1000) + std::string(4120, '\0'));
}

// Beyond the end, as a file is that has been truncated under us, gigabytes are not zeroed at once.
TEST_F(FileOpTest, WhatIsPastTheEndIsZeroedInPartsToo) {
  context_.bulk_bytes = context_.most_a_part = 4096;
  TestRequest request(BlockOp::kRead, 0, {6000, 10384});
  op_.Start(request.Set(std::string(16384, '?')), context_);
  EXPECT_EQ(op_.Advance(Transfer(op_, 1000)), Next::kStep);
  EXPECT_EQ(op_.Advance(0), Next::kStep);
  EXPECT_EQ(request.Text(),
            content_.substr(0, 1000) + std::string(4096, '\0') + std::string(11288, '?'));
  Next next = Next::kStep;
  for (int parts = 0; parts < 2; ++parts) next = op_.Advance(0);
  EXPECT_EQ(next, Next::kStep);
  EXPECT_EQ(op_.Advance(0), Next::kDone);
  EXPECT_EQ(request.Text(), content_.substr(0, 1000) + std::string(15384, '\0'));
}

TEST_F(FileOpTest, ADirectReadThatStopsWithinABlockIsAtTheEnd) {
  Direct(4096);
  TestRequest request(BlockOp::kRead, 0, {8192});
  op_.Start(request.Set(std::string(8192, '?')), context_);
  // Going on from 5000 would be refused with EINVAL.
  EXPECT_EQ(op_.Advance(Transfer(op_, 5000)), Next::kDone);
  EXPECT_EQ(request.Text(), content_.substr(0, 5000) + std::string(3192, '\0'));
}

TEST_F(FileOpTest, ADirectWriteThatStopsWithinABlockWritesItAgain) {
  Direct(4096);
  TestRequest request(BlockOp::kWrite, 0, {8192});
  op_.Start(request.Set(std::string(8192, 'w')), context_);
  EXPECT_EQ(op_.Advance(Transfer(op_, 5000)), Next::kStep);
  EXPECT_EQ(op_.step().offset, 4096u);
  EXPECT_EQ(op_.Advance(Transfer(op_)), Next::kDone);
  EXPECT_EQ(op_.result(), 0);

  op_.Start(request, context_);
  EXPECT_EQ(op_.Advance(Transfer(op_, 100)), Next::kDone);  // no way on
  EXPECT_EQ(op_.result(), -EIO);
}

TEST_F(FileOpTest, AWriteOfNothingMeansNoSpace) {
  TestRequest request(BlockOp::kWrite, 0, {4096});
  op_.Start(request, context_);
  EXPECT_EQ(op_.Advance(0), Next::kDone);
  EXPECT_EQ(op_.result(), -ENOSPC);
  EXPECT_EQ(counters_.errors.Get(), 1u);
}

TEST_F(FileOpTest, MoreIsTransferredThanAsked) {
  TestRequest request(BlockOp::kRead, 0, {4096});
  op_.Start(request, context_);
  EXPECT_EQ(op_.Advance(4097), Next::kDone);
  EXPECT_EQ(op_.result(), -EIO);
}

TEST_F(FileOpTest, ManySegmentsGoInBlocksOfVectors) {
  TestRequest request(BlockOp::kRead, 512, std::vector<uint32_t>(1000, 512));
  const int steps = Drive(op_, op_.Start(request, context_), ~uint64_t{0});
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(request.Text(), content_.substr(512, 512000));
  EXPECT_EQ(counters_.short_transfers.Get(), 0u);
}

TEST_F(FileOpTest, WhatIsLargeGoesInParts) {
  context_.bulk_bytes = context_.most_a_part = 4096;
  for (const uint32_t unit : {0u, 512u}) {
    if (unit != 0) Direct(unit);
    for (const bool write : {false, true}) {
      // Aligned, or in need of a bounce buffer where access is direct.
      for (const size_t skew : {0, 1}) {
        TestRequest request(write ? BlockOp::kWrite : BlockOp::kRead, 1024, {512, 9728, 6144},
                            skew);
        const std::string text(16384, write ? 'w' : '?');
        EXPECT_EQ(Drive(op_, op_.Start(request.Set(text), context_), ~uint64_t{0}), 4);
        EXPECT_EQ(op_.result(), 0);
        EXPECT_EQ(request.Text(), content_.substr(1024, 16384));
      }
    }
  }
  EXPECT_EQ(counters_.short_transfers.Get(), 0u);
  TestRequest small(BlockOp::kRead, 0, {2048, 2048});
  EXPECT_EQ(Drive(op_, op_.Start(small, context_), ~uint64_t{0}), 1);
}

TEST_F(FileOpTest, ZeroesGoInPartsToo) {
  context_.bulk_bytes = context_.most_a_part = 4096;
  target_.has_punch_hole = target_.has_zero_range = false;
  TestRequest zeroes(BlockOp::kWriteZeroes, 512);
  zeroes.length = 10240;
  EXPECT_EQ(Drive(op_, op_.Start(zeroes, context_), ~uint64_t{0}), 3);
  EXPECT_EQ(content_.substr(512, 10240), std::string(10240, '\0'));
}

TEST_F(FileOpTest, DurableIsDsyncUnlessFlushesAreIgnored) {
  TestRequest request(BlockOp::kWrite, 0, {4096});
  op_.Start(request, context_);
  EXPECT_EQ(op_.step().flags, 0);
  request.durable = true;
  op_.Start(request, context_);
  EXPECT_EQ(op_.step().flags, RWF_DSYNC);
  op_.Advance(Transfer(op_, 1000));
  EXPECT_EQ(op_.step().flags, RWF_DSYNC);  // the rest too
  target_.ignore_flushes = true;
  op_.Start(request, context_);
  EXPECT_EQ(op_.step().flags, 0);
}

TEST_F(FileOpTest, UnsafeAndReadOnlyFlushesNeedNoStep) {
  TestRequest flush(BlockOp::kFlush, 0);
  ASSERT_EQ(op_.Start(flush, context_), Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kSync);
  EXPECT_EQ(op_.Advance(0), Next::kDone);
  target_.ignore_flushes = true;
  EXPECT_EQ(op_.Start(flush, context_), Next::kDone);
  target_.ignore_flushes = false;
  target_.read_only = true;
  EXPECT_EQ(op_.Start(flush, context_), Next::kDone);
  EXPECT_EQ(op_.result(), 0);
  TestRequest write(BlockOp::kWrite, 0, {512});
  EXPECT_EQ(op_.Start(write, context_), Next::kDone);
  EXPECT_EQ(op_.result(), -EROFS);
}

TEST_F(FileOpTest, AFlushThatFailedInThePageCacheFailsForEver) {
  TestRequest flush(BlockOp::kFlush, 0);
  op_.Start(flush, context_);
  EXPECT_EQ(op_.Advance(-EIO), Next::kDone);
  EXPECT_EQ(op_.Start(flush, context_), Next::kDone);
  EXPECT_EQ(op_.result(), -EIO);
}

TEST_F(FileOpTest, AFlushBesideOneThatFailedFailsToo) {
  TestRequest flush(BlockOp::kFlush, 0), other(BlockOp::kFlush, 0);
  FileOp beside;
  op_.Start(flush, context_);
  ASSERT_EQ(beside.Start(other, context_), Next::kStep);
  EXPECT_EQ(op_.Advance(-EIO), Next::kDone);
  EXPECT_EQ(beside.Advance(0), Next::kDone);
  EXPECT_EQ(beside.result(), -EIO);
}

TEST_F(FileOpTest, AWriteThatFlushesItselfBesideAFlushThatFailedFailsToo) {
  TestRequest flush(BlockOp::kFlush, 0), write(BlockOp::kWrite, 0, {512});
  FileOp beside;
  op_.Start(flush, context_);
  write.durable = true;
  ASSERT_EQ(beside.Start(write, context_), Next::kStep);
  EXPECT_EQ(op_.Advance(-EIO), Next::kDone);
  EXPECT_EQ(beside.Advance(512), Next::kDone);
  EXPECT_EQ(beside.result(), -EIO);
  write.durable = false;
  ASSERT_EQ(beside.Start(write, context_), Next::kStep);
  EXPECT_EQ(beside.Advance(512), Next::kDone);
  EXPECT_EQ(beside.result(), 0) << "it promises nothing";
}

TEST_F(FileOpTest, AWriteThatFlushesItselfMayHaveLostWhatWasWrittenBefore) {
  TestRequest write(BlockOp::kWrite, 0, {512}), flush(BlockOp::kFlush, 0);
  write.durable = true;
  op_.Start(write, context_);
  EXPECT_EQ(op_.Advance(-ENOSPC), Next::kDone);
  EXPECT_EQ(op_.Start(flush, context_), Next::kStep) << "nothing was lost";
  op_.Start(write, context_);
  EXPECT_EQ(op_.Advance(-EIO), Next::kDone);
  EXPECT_EQ(op_.Start(flush, context_), Next::kDone);
  EXPECT_EQ(op_.result(), -EIO);
}

TEST_F(FileOpTest, AFlushThatFailedWithDirectAccessIsTriedAgain) {
  Direct(512);
  TestRequest flush(BlockOp::kFlush, 0);
  op_.Start(flush, context_);
  EXPECT_EQ(op_.Advance(-EIO), Next::kDone);
  EXPECT_EQ(op_.result(), -EIO);
  EXPECT_EQ(op_.Start(flush, context_), Next::kStep);
}

TEST_F(FileOpTest, ADurableDiscardIsFollowedByASync) {
  TestRequest discard(BlockOp::kDiscard, 4096);
  discard.length = 8192;
  discard.durable = true;
  ASSERT_EQ(op_.Start(discard, context_), Next::kStep);
  EXPECT_EQ(op_.step().flags, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
  EXPECT_EQ(op_.step().offset, 4096u);
  EXPECT_EQ(op_.step().length, 8192u);
  ASSERT_EQ(op_.Advance(0), Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kSync);
  EXPECT_EQ(op_.Advance(0), Next::kDone);
}

TEST_F(FileOpTest, DiscardWithoutHolesSucceedsAndIsRemembered) {
  TestRequest discard(BlockOp::kDiscard, 0);
  discard.length = 4096;
  ASSERT_EQ(op_.Start(discard, context_), Next::kStep);
  EXPECT_EQ(op_.Advance(-EOPNOTSUPP), Next::kDone);
  EXPECT_EQ(op_.result(), 0);
  EXPECT_EQ(op_.Start(discard, context_), Next::kDone);
  EXPECT_EQ(op_.result(), 0);
}

TEST_F(FileOpTest, ZeroesFallBackStepByStepAndRemember) {
  Direct(512);
  TestRequest zeroes(BlockOp::kWriteZeroes, 512);
  zeroes.length = (1 << 20) + 1536;
  zeroes.unmap = true;
  zeroes.durable = true;
  ASSERT_EQ(op_.Start(zeroes, context_), Next::kStep);
  EXPECT_EQ(op_.step().flags, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
  ASSERT_EQ(op_.Advance(-EOPNOTSUPP), Next::kStep);
  EXPECT_EQ(op_.step().flags, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
  const Next next = op_.Advance(-EOPNOTSUPP);
  ASSERT_EQ(next, Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kWrite);
  EXPECT_EQ(op_.step().flags, RWF_DSYNC);
  EXPECT_LE(op_.step().length, 1u << 20);
  const char before = content_[511], after = content_[512 + zeroes.length];
  Drive(op_, next, 100 * 512);
  EXPECT_EQ(op_.result(), 0);
  EXPECT_EQ(content_.substr(512, zeroes.length), std::string(zeroes.length, '\0'));
  EXPECT_EQ(content_[511], before);
  EXPECT_EQ(content_[512 + zeroes.length], after);

  ASSERT_EQ(op_.Start(zeroes, context_), Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kWrite);
}

TEST_F(FileOpTest, ARangeTheBlockDeviceRefusesIsWritten) {
  TestRequest zeroes(BlockOp::kWriteZeroes, 512);
  zeroes.length = 512;
  ASSERT_EQ(op_.Start(zeroes, context_), Next::kStep);
  ASSERT_EQ(op_.Advance(-EINVAL), Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kWrite);
  op_.Advance(Transfer(op_));
  ASSERT_EQ(op_.Start(zeroes, context_), Next::kStep);
  EXPECT_EQ(op_.step().kind, Kind::kAllocate);  // the next range may do
}

TEST_F(FileOpTest, RefusesWhatDirectAccessCannotDo) {
  Direct(4096);
  TestRequest offset(BlockOp::kRead, 512, {4096});
  EXPECT_EQ(op_.Start(offset, context_), Next::kDone);
  EXPECT_EQ(op_.result(), -EINVAL);
  TestRequest length(BlockOp::kWrite, 0, {4096, 512});
  EXPECT_EQ(op_.Start(length, context_), Next::kDone);
  EXPECT_EQ(op_.result(), -EINVAL);
}

TEST_F(FileOpTest, WaitsForABounceBuffer) {
  Direct(512);
  std::vector<std::byte*> taken;
  while (std::byte* buffer = context_.memory.bounce.Take()) taken.push_back(buffer);
  EXPECT_EQ(taken.size(), BouncePool::kBuffers);
  TestRequest request(BlockOp::kRead, 0, {512}, 1);
  EXPECT_EQ(op_.Start(request, context_), Next::kWait);
  for (std::byte* buffer : taken) context_.memory.bounce.Give(buffer);
  EXPECT_EQ(Drive(op_, op_.Resume(), ~uint64_t{0}), 1);
  EXPECT_EQ(request.Text(), content_.substr(0, 512));
}

}  // namespace
}  // namespace ringside
