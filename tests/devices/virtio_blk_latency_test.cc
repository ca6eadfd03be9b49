// The latency trace of a virtio-blk queue that a fake driver uses.
#include <algorithm>

#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/test_source.h"

namespace ringside::testing {
namespace {

class VirtioBlkLatencyTest : public VirtioBlkFixture {
 protected:
  static constexpr int64_t kSlackNs = 20'000;  // the scale of a short trace is a coarse one

  std::vector<LatencyRecord> Records(uint16_t queue = 0) {
    Reset();
    return device_->trace(queue)->Records();
  }
  static Setting Traced() { return {.trace_latency = true}; }
  static void ExpectOrdered(const LatencyRecord& record) {
    const bool raised = record.at(LatencyPoint::kInterrupt) != 0;
    EXPECT_TRUE(std::is_sorted(record.at_ns.begin(), record.at_ns.end() - (raised ? 0 : 1)))
        << ::testing::PrintToString(record.at_ns);
    EXPECT_GT(record.at(LatencyPoint::kSeen), 0);
  }
};

TEST_F(VirtioBlkLatencyTest, NobodyAskedNothingIsTraced) {
  Start({});
  EXPECT_EQ(device_->trace(0), nullptr);
}

TEST_F(VirtioBlkLatencyTest, EveryRequestIsRecordedWithItsKind) {
  Start(Traced());
  rig().Run(driver().AddWrite(0, Pattern(4096, 1)));
  rig().Run(driver().AddRead(0, 1024));
  rig().Run(driver().AddFlush());
  rig().Run(driver().AddRange(kBlkDiscard, {0, 1, 0}));
  rig().Run(driver().AddRange(kBlkWriteZeroes, {0, 1, 0}));
  rig().Run(driver().Add(kBlkGetId, 0, {}, 20));
  EXPECT_EQ(rig().Run(driver().AddRead(kDiskSize / 512, 512)), kBlkIoError);
  const std::vector<LatencyRecord> records = Records();
  std::vector<std::pair<RequestKind, uint64_t>> kinds;
  for (const LatencyRecord& record : records) {
    ExpectOrdered(record);
    kinds.emplace_back(record.kind, record.bytes);
  }
  using Kind = RequestKind;
  EXPECT_EQ(kinds, (std::vector<std::pair<Kind, uint64_t>>{{Kind::kWrite, 4096},
                                                           {Kind::kRead, 1024},
                                                           {Kind::kFlush, 0},
                                                           {Kind::kDiscard, 0},
                                                           {Kind::kDiscard, 0},
                                                           {Kind::kOther, 0},
                                                           {Kind::kOther, 0}}));
  // The disk never saw the last two.
  for (size_t i = 5; i < 7; ++i) {
    EXPECT_EQ(records[i].at(LatencyPoint::kSubmitted), records[i].at(LatencyPoint::kTaken));
    EXPECT_EQ(records[i].at(LatencyPoint::kCompleted), records[i].at(LatencyPoint::kTaken));
  }
  EXPECT_GT(records[0].at(LatencyPoint::kSubmitted), records[0].at(LatencyPoint::kTaken));
}

TEST_F(VirtioBlkLatencyTest, StampsLieWhereTheRequestWas) {
  Start(Traced());
  disk_->Hold(true);
  driver().AddRead(0, 512);
  const int64_t before_ns = MonotonicNs();
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(1));
  Settle();
  const int64_t held_ns = MonotonicNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const int64_t released_ns = MonotonicNs();
  disk_->ReleaseAll();
  rig().Wait();
  Settle();
  const int64_t after_ns = MonotonicNs();
  const std::vector<LatencyRecord> records = Records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_GE(records[0].at(LatencyPoint::kSeen), before_ns - kSlackNs);
  EXPECT_LE(records[0].at(LatencyPoint::kSubmitted), held_ns + kSlackNs);
  EXPECT_GE(records[0].at(LatencyPoint::kCompleted), released_ns - kSlackNs);
  EXPECT_LE(records[0].at(LatencyPoint::kPublished), after_ns + kSlackNs);
}

TEST_F(VirtioBlkLatencyTest, SeenIsTheLookThatShowedTheRequest) {
  Setting setting = Traced();
  setting.driver.queue = {.size = 64, .indirect = true, .table_entries = 8};
  Start(setting);
  // More than are taken in one go.
  for (int i = 0; i < 40; ++i) driver().AddRead(0, 512);
  rig().Publish();
  for (int i = 0; i < 40; ++i) rig().Wait();
  // One that comes while another is taken.
  bool added = false;
  disk_->OnSubmit([&] {
    if (std::exchange(added, true)) return;
    driver().AddRead(0, 512);
    driver().queue().Publish();
  });
  driver().AddRead(0, 512);
  rig().Publish();
  for (int i = 0; i < 2; ++i) rig().Wait();
  const std::vector<LatencyRecord> records = Records();
  ASSERT_EQ(records.size(), 42u);
  for (size_t i = 1; i < 40; ++i) {
    EXPECT_EQ(records[i].at(LatencyPoint::kSeen), records[0].at(LatencyPoint::kSeen)) << i;
  }
  EXPECT_GT(records[41].at(LatencyPoint::kSeen), records[40].at(LatencyPoint::kTaken));
}

TEST_F(VirtioBlkLatencyTest, IsSubmittedBeforeAHookThatSubmits) {
  Start(Traced());
  int64_t submits_ns = 0;
  TestHook submit([&] {  // as Linux AIO's
    submits_ns = MonotonicNs();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  disk_->OnSubmit([&] { threads_[0]->AtHandOver(submit); });
  rig().Run(driver().AddRead(0, 512));
  const std::vector<LatencyRecord> records = Records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_LE(records[0].at(LatencyPoint::kSubmitted), submits_ns + kSlackNs);
}

TEST_F(VirtioBlkLatencyTest, DeepBatchesOfSeveralQueuesAreOrdered) {
  Setting setting = Traced();
  setting.queues = 2;
  Start(setting);
  for (int round = 0; round < 50; ++round) {
    for (size_t queue = 0; queue < 2; ++queue) {
      for (int i = 0; i < 20; ++i) driver(queue).AddRead(0, 512);
      rig(queue).Publish();
    }
    for (size_t queue = 0; queue < 2; ++queue) {
      for (int i = 0; i < 20; ++i) rig(queue).Wait();
    }
  }
  Reset();
  for (uint16_t queue = 0; queue < 2; ++queue) {
    const std::vector<LatencyRecord> records = device_->trace(queue)->Records();
    EXPECT_EQ(records.size(), device_->stats(queue).requests());
    EXPECT_EQ(records.size(), 1000u);
    for (const LatencyRecord& record : records) ExpectOrdered(record);
  }
}

TEST_F(VirtioBlkLatencyTest, AnInterruptIsStampedWhereOneWasRaised) {
  Start(Traced());
  rig().queue().DisableInterrupts();
  rig().Run(driver().AddFlush());
  Settle();  // its look at the guest's wish comes behind the used index
  rig().queue().EnableInterrupts();
  rig().Run(driver().AddFlush());
  const std::vector<LatencyRecord> records = Records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].at(LatencyPoint::kInterrupt), 0);
  EXPECT_NE(records[1].at(LatencyPoint::kInterrupt), 0);
  EXPECT_EQ(device_->stats(0).signals.total(), 1u);
}

TEST_F(VirtioBlkLatencyTest, AChannelThatHandsOverAtOnceSubmitsWhenItTakes) {
  Setting setting = Traced();
  Make(setting);
  disk_->HandOverAtOnce(true);
  Activate();
  rig().Run(driver().AddRead(0, 512));
  const std::vector<LatencyRecord> records = Records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].at(LatencyPoint::kSubmitted), records[0].at(LatencyPoint::kTaken));
  ExpectOrdered(records[0]);
}

TEST_F(VirtioBlkLatencyTest, ResetsForgetWhatWasUnderWayAndNothingElse) {
  Start(Traced());
  for (int round = 0; round < 3; ++round) {
    rig().Run(driver().AddRead(0, 512));
    disk_->Hold(true);
    for (int i = 0; i < 20; ++i) driver().AddRead(0, 1024);
    rig().Publish();
    ASSERT_TRUE(disk_->WaitForHeld(20));
    BeginReset();
    disk_->ReleaseAll();
    WaitForReset();
    disk_->Hold(false);
    MakeRigs();
    Activate();
  }
  const std::vector<LatencyRecord> records = Records();
  EXPECT_EQ(records.size(), 3u);
  for (const LatencyRecord& record : records) {
    ExpectOrdered(record);
    EXPECT_EQ(record.bytes, 512u);
  }
}

}  // namespace
}  // namespace ringside::testing
