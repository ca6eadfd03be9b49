// What a channel of an overlay makes of requests: what goes where, in which order, and what a guest
// reads then.
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/overlay/overlay_rig.h"
#include "tests/support/allocation_counter.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kFlushRecord;
using testing::kRigSize;
using testing::Letters;
using testing::OverlayRig;
using testing::RigHeader;
using testing::RigRequest;
using ::testing::SizeIs;
using testing::WriteRecord;
using Record = testing::MemoryDisk::Record;

constexpr uint64_t kBlock = kOverlayBlock;

TEST(OverlayChannelTest, WhatNobodyWroteIsTheBases) {
  OverlayRig rig;
  EXPECT_EQ(rig.Read(512, 3 * kBlock), Letters(3 * kBlock, 'b'));
  EXPECT_THAT(rig.FileRecords(), IsEmpty());
  EXPECT_EQ(rig.base().records(),
            (std::vector<Record>{{BlockOp::kRead, 512, 3 * kBlock, 1, false, false}}));
}

TEST(OverlayChannelTest, AFirstWriteTakesItsBlockWithIt) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(kBlock + 512, 1024, 'w'), 0);
  EXPECT_THAT(rig.FileRecords(), ElementsAre(WriteRecord(rig.data_offset() + kBlock, kBlock, 3)));
  EXPECT_EQ(rig.Read(0, 3 * kBlock),
            Letters(kBlock + 512, 'b') + Letters(1024, 'w') + Letters(2 * kBlock - 1536, 'b'));
  EXPECT_EQ(rig.Count("overlay_copies"), 1u);
}

TEST(OverlayChannelTest, AFirstWriteOfWholeBlocksReadsNothing) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(kBlock, 2 * kBlock, 'w'), 0);
  EXPECT_THAT(rig.FileRecords(), ElementsAre(WriteRecord(rig.data_offset() + kBlock, 2 * kBlock)));
  EXPECT_THAT(rig.base().records(), IsEmpty());
}

TEST(OverlayChannelTest, AWriteOverManyBlocksCopiesItsEnds) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(3 * kBlock - 512, kBlock + 1024, 'w'), 0);
  EXPECT_EQ(rig.Count("overlay_copies"), 2u);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(WriteRecord(rig.data_offset() + 2 * kBlock, 3 * kBlock, 3)));
  EXPECT_EQ(rig.Read(2 * kBlock, 3 * kBlock),
            Letters(kBlock - 512, 'b') + Letters(kBlock + 1024, 'w') + Letters(kBlock - 512, 'b'));
}

TEST(OverlayChannelTest, WhatIsHereGoesStraightToTheFile) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, 2 * kBlock, 'a'), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Write(kBlock - 512, 1024, 'w'), 0);
  EXPECT_EQ(rig.Read(kBlock - 512, 512), Letters(512, 'w'));
  EXPECT_THAT(
      rig.FileRecords(),
      ElementsAre(WriteRecord(rig.data_offset() + kBlock - 512, 1024),
                  Record{BlockOp::kRead, rig.data_offset() + kBlock - 512, 512, 1, false, false}));
  EXPECT_EQ(rig.Count("overlay_slow_writes"), 1u);
}

TEST(OverlayChannelTest, OnlyTheEndThatIsNotHereIsCopied) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, kBlock, 'a'), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Write(512, kBlock, 'w'), 0);
  EXPECT_EQ(rig.Count("overlay_copies"), 1u);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(WriteRecord(rig.data_offset() + 512, 2 * kBlock - 512, 2)));
  EXPECT_EQ(rig.Read(0, 2 * kBlock),
            Letters(512, 'a') + Letters(kBlock, 'w') + Letters(kBlock - 512, 'b'));
}

TEST(OverlayChannelTest, ABaseThatIsSmallerIsFollowedByZeroes) {
  OverlayRig rig(1, RigHeader(kBlock + 512));
  EXPECT_EQ(rig.Read(0, 3 * kBlock), Letters(kBlock + 512, 'b') + Letters(2 * kBlock - 512, 0));
  ASSERT_EQ(rig.Write(kBlock + 1024, 512, 'w'), 0);
  EXPECT_EQ(rig.Read(kBlock, kBlock),
            Letters(512, 'b') + Letters(512, 0) + Letters(512, 'w') + Letters(kBlock - 1536, 0));
}

// Its last block is whole in the file.
TEST(OverlayChannelTest, TheDiskMayEndInABlock) {
  const uint64_t size = 2 * kBlock + 1024;
  OverlayRig rig(1, RigHeader(size, size));
  ASSERT_EQ(rig.Write(2 * kBlock + 512, 512, 'w'), 0);
  EXPECT_EQ(rig.Read(2 * kBlock, 1024), Letters(512, 'b') + Letters(512, 'w'));
  ASSERT_EQ(rig.Discard(2 * kBlock, 1024), 0);
  EXPECT_EQ(rig.Read(2 * kBlock, 1024), Letters(1024, 0));
  EXPECT_EQ(rig.Count("overlay_copies"), 1u);
}

TEST(OverlayChannelTest, ADiscardShowsZeroesAndNeverTheBase) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(kBlock, kBlock, 'w'), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Discard(0, 3 * kBlock), 0);
  EXPECT_EQ(rig.Read(0, 4 * kBlock), Letters(3 * kBlock, 0) + Letters(kBlock, 'b'));
  EXPECT_THAT(rig.FileRecords(), ElementsAre(Record{BlockOp::kDiscard, rig.data_offset(),
                                                    3 * kBlock, 0, false, true}));
  EXPECT_EQ(rig.state().map->here_blocks(), 0u);
  EXPECT_EQ(rig.state().map->zero_blocks(), 3u);
  // A part of such a block is written into zeroes.
  ASSERT_EQ(rig.Write(512, 512, 'x'), 0);
  EXPECT_EQ(rig.Read(0, kBlock), Letters(512, 0) + Letters(512, 'x') + Letters(kBlock - 1024, 0));
}

TEST(OverlayChannelTest, WhatShowsTheBaseHasNoSpaceToGiveBack) {
  OverlayRig rig;
  ASSERT_EQ(rig.Discard(0, kRigSize), 0);
  EXPECT_THAT(rig.FileRecords(), IsEmpty());
  EXPECT_EQ(rig.Read(0, kRigSize), Letters(kRigSize, 0));
}

TEST(OverlayChannelTest, PartsOfBlocksAreZeroedToo) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(3 * kBlock, kBlock, 'w'), 0);
  RigRequest zeroes(BlockOp::kWriteZeroes, kBlock + 512, 3 * kBlock - 1024);
  ASSERT_EQ(rig.Run(zeroes), 0);
  EXPECT_EQ(rig.Read(0, 5 * kBlock), Letters(kBlock + 512, 'b') + Letters(3 * kBlock - 1024, 0) +
                                         Letters(512, 'w') + Letters(kBlock, 'b'));
  RigRequest small(BlockOp::kWriteZeroes, 5 * kBlock + 512, 512);
  ASSERT_EQ(rig.Run(small), 0);
  EXPECT_EQ(rig.Read(5 * kBlock, kBlock),
            Letters(512, 'b') + Letters(512, 0) + Letters(kBlock - 1024, 'b'));
}

TEST(OverlayChannelTest, ZeroesThatKeepTheirSpaceAreTheFiles) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, kBlock, 'w'), 0);
  rig.FileRecords();
  RigRequest zeroes(BlockOp::kWriteZeroes, 512, 512);
  zeroes.unmap = false;
  ASSERT_EQ(rig.Run(zeroes), 0);
  EXPECT_THAT(rig.FileRecords(), ElementsAre(Record{BlockOp::kWriteZeroes, rig.data_offset() + 512,
                                                    512, 0, false, false}));
  EXPECT_EQ(rig.state().map->here_blocks(), 1u);
}

TEST(OverlayChannelTest, AReadIsCutWhereItsBlocksAreInOtherPlaces) {
  OverlayRig rig;
  std::string expected;
  for (uint64_t block = 0; block < testing::kRigBlocks; ++block) {
    if (block % 3 == 1) {
      EXPECT_EQ(rig.Write(block * kBlock, kBlock, 'w'), 0);
    }
    if (block % 3 == 2) {
      EXPECT_EQ(rig.Discard(block * kBlock, kBlock), 0);
    }
    constexpr char kLetters[] = {'b', 'w', 0};
    expected += Letters(kBlock, kLetters[block % 3]);
  }
  EXPECT_EQ(rig.Read(512, kRigSize - 1024), expected.substr(512, kRigSize - 1024));
}

TEST(OverlayChannelTest, BeyondTheEndIsRefused) {
  OverlayRig rig;
  EXPECT_EQ(rig.Write(kRigSize, 512, 'w'), -EINVAL);
  EXPECT_EQ(rig.Write(kRigSize - 512, 1024, 'w'), -EINVAL);
  EXPECT_EQ(rig.Write(UINT64_MAX - 511, 1024, 'w'), -EINVAL);
  EXPECT_EQ(rig.Read(kRigSize - 512, 1024), "error -22");
  EXPECT_EQ(rig.Discard(kRigSize - 512, 1024), -EINVAL);
  EXPECT_EQ(rig.Discard(0, UINT64_MAX - 511), -EINVAL);
  EXPECT_THAT(rig.FileRecords(), IsEmpty());
}

TEST(OverlayChannelTest, WhoOnlyReadsChangesNothing) {
  OverlayRig rig;
  rig.info().read_only = true;
  EXPECT_EQ(rig.Write(0, 512, 'w'), -EROFS);
  EXPECT_EQ(rig.Discard(0, kBlock), -EROFS);
  EXPECT_EQ(rig.Flush(), 0);
  EXPECT_EQ(rig.Read(0, 512), Letters(512, 'b'));
}

// What is held is released in either order.
class AtOnceTest : public ::testing::TestWithParam<size_t> {};

TEST_P(AtOnceTest, TwoWritesToOneBlockOfTheBaseLoseNothing) {
  OverlayRig rig(GetParam());
  RigRequest first(BlockOp::kWrite, 512, 512, 'x');
  RigRequest second(BlockOp::kWrite, 2048, 512, 'y');
  RigRequest third(BlockOp::kDiscard, kBlock - 512, 512);
  rig.base().Hold(true);
  rig.file().Hold(true);
  rig.Submit(first, 0);
  rig.Submit(second, GetParam() - 1);
  rig.Submit(third, 0);
  ASSERT_TRUE(rig.base().WaitForHeld(1));
  testing::LetTurn(rig.thread());
  EXPECT_EQ(rig.base().held(), 1u);  // the others wait for the first
  EXPECT_EQ(rig.Count("overlay_waits"), 2u);
  rig.base().Release(0);
  rig.base().Hold(false);
  ASSERT_TRUE(rig.file().WaitForHeld(1));
  EXPECT_FALSE(second.has_ended());
  rig.file().Release(0);
  EXPECT_EQ(first.Wait(), 0);
  ASSERT_TRUE(rig.file().WaitForHeld(1));
  rig.file().Release(0);
  EXPECT_EQ(second.Wait(), 0);
  ASSERT_TRUE(rig.file().WaitForHeld(1));
  rig.file().Hold(false);
  rig.file().Release(0);
  EXPECT_EQ(third.Wait(), 0);
  EXPECT_EQ(rig.Read(0, kBlock), Letters(512, 'b') + Letters(512, 'x') + Letters(1024, 'b') +
                                     Letters(512, 'y') + Letters(1024, 'b') + Letters(512, 0));
  EXPECT_EQ(rig.Count("overlay_copies"), 1u);
}

TEST_P(AtOnceTest, ManyWritersOfTheSameBlocksLoseNothing) {
  constexpr size_t kRounds = 30;
  for (size_t round = 0; round < kRounds; ++round) {
    OverlayRig rig(GetParam());
    std::deque<RigRequest> requests;
    std::string expected = Letters(2 * kBlock, 'b');
    for (uint64_t sector = 0; sector < 16; ++sector) {
      if (sector == round % 16) continue;
      const char letter = static_cast<char>('A' + sector);
      requests.emplace_back(BlockOp::kWrite, sector * 512, 512, letter);
      expected.replace(sector * 512, 512, Letters(512, letter));
    }
    for (size_t i = 0; i < requests.size(); ++i) rig.Begin(requests[i], i % GetParam());
    for (RigRequest& request : requests) ASSERT_EQ(request.Wait(), 0);
    ASSERT_EQ(rig.Read(0, 2 * kBlock), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, AtOnceTest, ::testing::Values(1, 2));

TEST(OverlayChannelTest, BeyondItsLimitItIsFull) {
  OverlayRig rig(1, RigHeader(), /*limit=*/2 * kBlock);
  ASSERT_EQ(rig.Write(0, 512, 'w'), 0);
  EXPECT_EQ(rig.Write(kBlock, 2 * kBlock, 'w'), -ENOSPC);
  EXPECT_EQ(rig.Write(0, 2 * kBlock, 'x'), 0);
  EXPECT_EQ(rig.Write(3 * kBlock, 512, 'w'), -ENOSPC);
  RigRequest edges(BlockOp::kWriteZeroes, 3 * kBlock + 512, 512);
  EXPECT_EQ(rig.Run(edges), -ENOSPC);
  EXPECT_EQ(rig.Write(0, 2 * kBlock, 'y'), 0);  // what it has can be written
  ASSERT_EQ(rig.Discard(0, kBlock), 0);
  EXPECT_EQ(rig.Write(3 * kBlock, 512, 'w'), 0);
}

TEST(OverlayChannelTest, AWriteThatFailsLeavesTheBase) {
  OverlayRig rig(1, RigHeader(), /*limit=*/kBlock);
  rig.base().FailWith(EIO);
  EXPECT_EQ(rig.Write(512, 512, 'w'), -EIO);
  rig.base().FailWith(0);
  rig.file().FailWith(ENOSPC);
  EXPECT_EQ(rig.Write(0, kBlock, 'w'), -ENOSPC);
  rig.file().FailWith(0);
  EXPECT_EQ(rig.Read(0, kBlock), Letters(kBlock, 'b'));
  EXPECT_EQ(rig.Write(512, 512, 'x'), 0);  // nothing is kept of the limit, nor is the block busy
}

TEST(OverlayChannelTest, ThoseThatWaitAreGivenBackWhenRecalled) {
  OverlayRig rig(2);
  rig.base().Hold(true);
  RigRequest first(BlockOp::kWrite, 512, 512, 'x');
  rig.Submit(first, 0);
  RequestOwner owner;
  RigRequest second(BlockOp::kWrite, 1024, 512, 'y');
  second.owner = &owner;
  RigRequest third(BlockOp::kWrite, 2048, 512, 'z');
  rig.Submit(second, 1);
  rig.Submit(third, 0);
  ASSERT_TRUE(rig.base().WaitForHeld(1));
  owner.recalls = true;
  EXPECT_EQ(second.Wait(), -ECANCELED);
  EXPECT_FALSE(third.has_ended());
  rig.base().Hold(false);
  rig.base().ReleaseAll();
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(third.Wait(), 0);
  EXPECT_EQ(rig.Read(512, 512), Letters(512, 'x'));
  EXPECT_EQ(rig.Read(1024, 512), Letters(512, 'b'));
}

// The map has forgotten the blocks by then: nobody else would give their space back.
TEST(OverlayChannelTest, WhatGivesSpaceBackIsNotRecalled) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, 2 * kBlock, 'w'), 0);
  RequestOwner owner;
  RigRequest discard(BlockOp::kDiscard, 0, 2 * kBlock);
  discard.owner = &owner;
  EXPECT_EQ(rig.Run(discard), 0);
  EXPECT_EQ(rig.file().recallable(), 0u);
}

TEST(OverlayChannelTest, AFlushThatSharesACommitIsGivenBackWhenRecalled) {
  OverlayRig rig(2);
  rig.file().Hold(true);
  RigRequest first(BlockOp::kFlush, 0);
  rig.Submit(first, 0);
  RequestOwner owner;
  RigRequest second(BlockOp::kFlush, 0);
  second.owner = &owner;
  rig.Submit(second, 1);
  owner.recalls = true;
  EXPECT_EQ(second.Wait(), -ECANCELED);
  rig.file().Hold(false);
  rig.file().ReleaseAll();
  EXPECT_EQ(first.Wait(), 0);
}

TEST(OverlayChannelTest, TheEndOfTheMachineEndsWhatWaits) {
  OverlayRig rig(2);
  rig.base().Hold(true);
  RigRequest first(BlockOp::kWrite, 512, 512, 'x');
  RigRequest second(BlockOp::kWrite, 1024, 512, 'y');
  rig.Submit(first, 0);
  rig.Submit(second, 1);
  ASSERT_TRUE(rig.base().WaitForHeld(1));
  rig.Cancel(1);
  EXPECT_EQ(second.Wait(), -ECANCELED);
  rig.Cancel(0);
  rig.base().Hold(false);
  rig.base().ReleaseAll();
  EXPECT_EQ(first.Wait(), -ECANCELED);
  RigRequest late(BlockOp::kWrite, 0, 512, 'z');
  EXPECT_EQ(rig.Run(late), -ECANCELED);
}

// More at once than there is memory for copies.
TEST(OverlayChannelTest, WritesWaitForMemoryForCopies) {
  const uint64_t size = 200 * kBlock;
  OverlayRig rig(1, RigHeader(size, size));
  rig.base().Hold(true);
  std::deque<RigRequest> requests;
  for (uint64_t i = 0; i < 200; ++i) {
    requests.emplace_back(BlockOp::kWrite, i * kBlock, 512, 'w');
    rig.Submit(requests.back());
  }
  EXPECT_EQ(rig.base().held(), 64u);
  rig.base().Hold(false);
  rig.base().ReleaseAll();
  for (RigRequest& request : requests) EXPECT_EQ(request.Wait(), 0);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(rig.Read(i * kBlock, 1024), Letters(512, 'w') + Letters(512, 'b'));
  }
}

TEST(OverlayChannelTest, AllocatesNothingInTheSteadyState) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  OverlayRig rig(1, RigHeader(kRigSize / 2));
  rig.file().KeepRecords(false);
  rig.base().KeepRecords(false);
  const auto count = [&] {
    uint64_t allocations = 0;
    testing::RunOn(rig.thread(), [&] { allocations = testing::AllocationsOfThisThread(); });
    return allocations;
  };
  const auto round = [&] {
    RigRequest write(BlockOp::kWrite, 512, kBlock, 'w');
    RigRequest read(BlockOp::kRead, 0, 4 * kBlock, '-');
    RigRequest flush(BlockOp::kFlush, 0);
    RigRequest discard(BlockOp::kDiscard, 512, 2 * kBlock);
    const uint64_t before = count();
    for (RigRequest* request : {&write, &read, &flush, &discard}) EXPECT_EQ(rig.Run(*request), 0);
    return count() - before;
  };
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(round(), 0u);
}

}  // namespace
}  // namespace ringside
