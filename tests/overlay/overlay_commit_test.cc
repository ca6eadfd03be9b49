// How the map of an overlay gets into its file: commits, which flushes share, and intents before
// data is overwritten that a backup may have.
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/overlay/overlay_rig.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using testing::kFlushRecord;
using testing::OverlayRig;
using testing::RigHeader;
using testing::RigRequest;
using ::testing::SizeIs;
using testing::WriteRecord;
using Record = testing::MemoryDisk::Record;

constexpr uint64_t kBlock = kOverlayBlock;

TEST(OverlayChannelTest, AFlushMakesDataDurableAndThenTheMap) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, kBlock, 'w'), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 0), 4096), kFlushRecord));
  const MapPage page = rig.PageIn(0);
  EXPECT_EQ(page.sequence, 1u);
  EXPECT_EQ(page.here[0], 1u);
  // Nothing has changed since: one flush, as of any file.
  ASSERT_EQ(rig.Write(0, kBlock, 'x'), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(), ElementsAre(kFlushRecord));
  // The slot that counts is not written.
  ASSERT_EQ(rig.Discard(kBlock, kBlock), 0);
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 1), 4096), kFlushRecord));
  EXPECT_EQ(rig.PageIn(1).zeroes[0], 2u);
}

TEST(OverlayChannelTest, FlushesThatComeMeanwhileShareTheNextCommit) {
  OverlayRig rig(2);
  ASSERT_EQ(rig.Write(0, kBlock, 'w'), 0);
  rig.FileRecords();
  rig.file().Hold(true);
  std::deque<RigRequest> flushes;
  for (int i = 0; i < 5; ++i) {
    flushes.emplace_back(BlockOp::kFlush, 0);
    rig.Submit(flushes.back(), static_cast<size_t>(i % 2));
  }
  ASSERT_TRUE(rig.file().WaitForHeld(1));
  EXPECT_EQ(rig.file().held(), 1u);
  // A write that ends now is the next commit's.
  rig.file().Hold(false);
  ASSERT_EQ(rig.Write(kBlock, kBlock, 'x', 1), 0);
  rig.file().ReleaseAll();
  for (RigRequest& flush : flushes) EXPECT_EQ(flush.Wait(), 0);
  EXPECT_EQ(rig.Count("overlay_commits"), 2u);
  EXPECT_EQ(rig.PageIn(0).here[0], 1u);
  EXPECT_EQ(rig.PageIn(1).here[0], 3u);
}

TEST(OverlayChannelTest, ADurableWriteHasItsMapCommitted) {
  OverlayRig rig;
  RigRequest first(BlockOp::kWrite, 0, 512, 'w');
  first.durable = true;
  ASSERT_EQ(rig.Run(first), 0);
  EXPECT_EQ(rig.PageIn(0).here[0], 1u);
  // As does one to a block that is here, while the map does not say so yet.
  ASSERT_EQ(rig.Write(kBlock, kBlock, 'x'), 0);
  RigRequest second(BlockOp::kWrite, kBlock, 512, 'y');
  second.durable = true;
  ASSERT_EQ(rig.Run(second), 0);
  EXPECT_EQ(rig.PageIn(1).here[0], 3u);
  rig.FileRecords();
  RigRequest third(BlockOp::kWrite, 0, 512, 'z');
  third.durable = true;
  ASSERT_EQ(rig.Run(third), 0);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(Record{BlockOp::kWrite, rig.data_offset(), 512, 1, true, false}));
}

TEST(OverlayChannelTest, ManyPagesGoInBatches) {
  const uint64_t size = 600 * kBytesPerMapPage;
  const BaseIdentity base = {.kind = BaseKind::kRaw, .size = 512};
  OverlayHeader header = *NewOverlayHeader(size, base, "", size);
  // As if it were a small one: no data is written here.
  header.size = 512;
  OverlayRig rig(1, header);
  rig.info().size = size;
  ASSERT_EQ(rig.Discard(0, size), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  size_t flushes = 0;
  size_t writes = 0;
  for (const Record& record : rig.FileRecords()) {
    (record.op == BlockOp::kFlush ? flushes : writes) += 1;
  }
  EXPECT_EQ(writes, 600u);
  EXPECT_EQ(flushes, 4u);
  EXPECT_FALSE(rig.state().map->has_changes());
}

TEST(OverlayChannelTest, InMemoryNothingIsCommitted) {
  OverlayRig rig(1, RigHeader(), 0, /*keeps_map=*/false);
  RigRequest durable(BlockOp::kWrite, 0, 512, 'w');
  durable.durable = true;
  ASSERT_EQ(rig.Run(durable), 0);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(), ElementsAre(kFlushRecord));
}

TEST(OverlayChannelTest, ACommitThatFailsIsMadeAnew) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, kBlock, 'w'), 0);
  ASSERT_EQ(rig.Flush(), 0);
  ASSERT_EQ(rig.Write(kBlock, kBlock, 'x'), 0);
  rig.file().FailWith(EIO);
  EXPECT_EQ(rig.Flush(), -EIO);
  rig.file().FailWith(0);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 1), 4096), kFlushRecord));
  EXPECT_EQ(rig.PageIn(1).here[0], 3u);
}

// The last flush fails: whether the slot is there nobody knows, so the one before still counts.
TEST(OverlayChannelTest, ASlotThatMayBeThereIsWrittenAgain) {
  OverlayRig rig;
  ASSERT_EQ(rig.Write(0, kBlock, 'w'), 0);
  ASSERT_EQ(rig.Flush(), 0);
  ASSERT_EQ(rig.Write(kBlock, kBlock, 'x'), 0);
  rig.file().Hold(true);
  RigRequest flush(BlockOp::kFlush, 0);
  rig.Submit(flush);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(rig.file().WaitForHeld(1));
    rig.file().Release(0);
  }
  ASSERT_TRUE(rig.file().WaitForHeld(1));
  rig.file().FailWith(EIO);
  rig.file().Release(0);
  EXPECT_EQ(flush.Wait(), -EIO);
  rig.file().FailWith(0);
  rig.file().Hold(false);
  rig.FileRecords();
  ASSERT_EQ(rig.Flush(), 0);
  EXPECT_THAT(rig.FileRecords(),
              ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 1), 4096), kFlushRecord));
}

// With a backup behind them.
class DirtyTest : public ::testing::Test {
 protected:
  static OverlayHeader Header() {
    OverlayHeader header = RigHeader();
    header.period = 1;
    return header;
  }
  // As it was left by a former use: two blocks here, the second of them dirty.
  DirtyTest() {
    MapPage page;
    page.period = 1;
    page.sequence = 1;
    page.here[0] = 3;
    page.dirty[0] = 2;
    const MutexLock lock(rig_.state().mutex);
    rig_.state().map->Load(0, page, 0);
  }
  // `change` of the first block fails where its data is written: behind two flushes and a page for
  // the intent.
  template <typename Function>
  void ExpectDirtyAfterFailureOf(Function change) {
    int submitted = 0;
    rig_.file().OnSubmit([&] {
      if (++submitted == 4) rig_.file().FailWith(EIO);
    });
    EXPECT_EQ(change(), -EIO);
    rig_.file().OnSubmit(nullptr);
    rig_.file().FailWith(0);
    EXPECT_EQ(submitted, 4);
    ASSERT_EQ(rig_.Flush(), 0);
    EXPECT_EQ(rig_.PageIn(0).dirty[0], 3u);
  }
  OverlayRig rig_{1, Header()};
};

TEST_F(DirtyTest, DataThatIsHereIsOverwrittenWhenTheIntentIsDurable) {
  ASSERT_EQ(rig_.Write(0, 512, 'w'), 0);
  EXPECT_THAT(rig_.FileRecords(), ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 1), 4096),
                                              kFlushRecord, WriteRecord(rig_.data_offset(), 512)));
  EXPECT_EQ(rig_.PageIn(1).intents, 1u);
  EXPECT_EQ(rig_.PageIn(1).dirty[0], 2u);
  ASSERT_EQ(rig_.Flush(), 0);
  EXPECT_EQ(rig_.PageIn(0).dirty[0], 3u);
  rig_.FileRecords();
  ASSERT_EQ(rig_.Write(0, 512, 'x'), 0);
  EXPECT_THAT(rig_.FileRecords(), ElementsAre(WriteRecord(rig_.data_offset(), 512)));
}

TEST_F(DirtyTest, WhatIsDirtyOrNotHereNeedsNoIntent) {
  ASSERT_EQ(rig_.Write(kBlock, 512, 'w'), 0);
  ASSERT_EQ(rig_.Write(3 * kBlock, kBlock, 'w'), 0);
  EXPECT_THAT(rig_.FileRecords(), SizeIs(2));
  ASSERT_EQ(rig_.Flush(), 0);
  EXPECT_EQ(rig_.PageIn(1).dirty[0], 0b1010u);
}

// Some of it may be in the file, whose intents are forgotten when it is closed.
TEST_F(DirtyTest, WhatAFailedWriteMayHaveChangedIsDirty) {
  ExpectDirtyAfterFailureOf([this] { return rig_.Write(0, 512, 'w'); });
}

TEST_F(DirtyTest, WhatFailedZeroesMayHaveChangedIsDirty) {
  ExpectDirtyAfterFailureOf([this] { return rig_.Discard(512, 512); });
}

TEST_F(DirtyTest, ADiscardOfDataThatIsHereWaitsForTheIntent) {
  ASSERT_EQ(rig_.Discard(0, kBlock), 0);
  EXPECT_THAT(rig_.FileRecords(),
              ElementsAre(kFlushRecord, WriteRecord(PageSlotOffset(0, 1), 4096), kFlushRecord,
                          Record{BlockOp::kDiscard, rig_.data_offset(), kBlock, 0, false, true}));
  ASSERT_EQ(rig_.Flush(), 0);
  EXPECT_EQ(rig_.PageIn(0).dirty[0], 3u);
}

}  // namespace
}  // namespace ringside
