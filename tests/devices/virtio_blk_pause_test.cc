// Queues of virtio-blk that rest: in the middle of I/O, of moves and of resets.
#include "tests/support/devices/virtio_blk_move_fixture.h"

namespace ringside::testing {
namespace {

class VirtioBlkPauseTest : public VirtioBlkMoveFixture {};

TEST_F(VirtioBlkPauseTest, NothingIsTakenUntilItGoesOn) {
  for (const bool event_idx : {false, true}) {
    Setting setting;
    setting.driver.queue.event_idx = event_idx;
    Start(setting);
    for (int round = 0; round < 50; ++round) {
      ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
      Pause();
      const uint64_t before = device_->stats(0).requests();
      const uint16_t position = device_->Position(0);
      driver().AddRead(0, 512);
      rig().Publish();
      driver().AddRead(8, 512);
      rig().Publish();
      Settle();
      EXPECT_EQ(device_->stats(0).requests(), before);
      EXPECT_EQ(device_->Position(0), position);
      device_->Resume();
      for (int i = 0; i < 2; ++i) ASSERT_EQ(driver().status(rig().Wait().head), kBlkOk);
    }
    Reset();
  }
}

// The driver will not kick again, and the eventfd, as that of a device made anew, tells of no kick:
// a watch that begins would find one that was written to before.
TEST_F(VirtioBlkPauseTest, AnEntryWhoseKickIsGoneIsFound) {
  Start({});
  Pause();
  driver().AddRead(0, 512);
  rig().queue().Publish();  // no kick
  device_->Resume();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, WhatIsInFlightIsWaitedForAndShown) {
  Start({});
  HoldReads(3);
  BeginPause();
  Settle();
  driver().AddFlush();
  rig().Publish();
  disk_->Release(1);
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  Settle();
  EXPECT_FALSE(rests());
  disk_->Hold(false);
  disk_->ReleaseAll();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  ASSERT_TRUE(SpinUntil([&] { return rests(); }));
  EXPECT_EQ(device_->Position(0), 3);
  EXPECT_EQ(device_->stats(0).requests(), 3u);
  device_->Resume();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, ItIsCalledOffWhileStorageHangsAndTheQueueGoesOn) {
  Start({});
  HoldReads(1);
  for (int round = 0; round < 20; ++round) {
    BeginPause();
    if (round % 2 == 0) Settle();
    EXPECT_FALSE(rests());
    device_->Resume();
    EXPECT_TRUE(rests()) << "whoever waits is told";
    disk_->Hold(false);
    ASSERT_EQ(rig().Run(driver().AddRead(8, 512)), kBlkOk) << "beside the one that hangs";
    disk_->Hold(true);
  }
  ReleaseAndWait(1);
}

// To rest, called back, and to rest again, all in one turn, at whose end the hook of the first is
// run.
TEST_F(VirtioBlkPauseTest, ARestThatWasCalledOffIsNotTakenForTheNext) {
  Start({});
  ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  std::unique_ptr<BoundedEvent> looked = std::make_unique<BoundedEvent>();
  bool rested_early = false;
  TaskOf look([&] {
    rested_early = rests();
    looked->Notify();
  });
  TaskOf pause_again([&] {
    threads_[0]->Post(look);  // in the next turn, before the queue leaves
    BeginPause();
  });
  RunOn(*threads_[0], [&] {
    BeginPause();
    device_->Resume();
    threads_[0]->Post(pause_again);
  });
  looked->WaitOrAbort();
  EXPECT_FALSE(rested_early) << "the thread still looks at its ring";
  ASSERT_TRUE(SpinUntil([&] { return rests(); }));
  device_->Resume();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, AQueueThatStartsMeanwhileIsHeld) {
  Make({});
  Pause();
  driver().AddRead(0, 512);
  rig().Publish();
  Activate();
  Settle();
  EXPECT_EQ(device_->stats(0).requests(), 0u);
  EXPECT_EQ(device_->Position(0), 0);
  device_->Resume();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, OneThatIsHeldIsReset) {
  Make({});
  Pause();
  Activate();
  Reset();
  device_->Resume();
  MakeRigs();
  Activate();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, AResetEndsTheWayToARest) {
  Start({});
  HoldReads(2);
  BeginPause();
  Settle();
  BeginReset();
  Settle();
  EXPECT_FALSE(rests());
  disk_->Hold(false);
  disk_->ReleaseAll();
  WaitForReset();
  EXPECT_TRUE(rests());
  EXPECT_FALSE(rig().queue().HasUsed());
  MakeRigs();
  Activate();
  driver().AddRead(0, 512);
  rig().Publish();
  Settle();
  EXPECT_EQ(device_->stats(0).requests(), 2u) << "it is still paused";
  device_->Resume();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
}

TEST_F(VirtioBlkPauseTest, AQueueAtRestMoves) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  Pause();
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_TRUE(IsOn(1));
  EXPECT_TRUE(device_->Needs(*threads_[0])) << "what it has there";
  driver().AddRead(0, 512);
  rig().Publish();
  Settle();
  EXPECT_EQ(device_->stats(0).requests(), 1u);
  device_->Resume();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  EXPECT_FALSE(device_->Needs(*threads_[0]));
  EXPECT_EQ(ServedBy(), IdOf(1));
  Pause();
  EXPECT_TRUE(MoveTo(0).ok());
  EXPECT_TRUE(MoveTo(1).ok()) << "and back";
  device_->Resume();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

TEST_F(VirtioBlkPauseTest, AQueueThatMovesComesToRestOnTheOtherThread) {
  Start(TwoThreads());
  HoldReads(1);
  const auto move = BeginMove(0, 1);
  Settle();
  BeginPause();
  Settle();
  EXPECT_FALSE(rests());
  disk_->Hold(false);
  disk_->ReleaseAll();
  move->over.WaitOrAbort();
  ASSERT_TRUE(SpinUntil([&] { return rests(); }));
  EXPECT_TRUE(IsOn(1));
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  device_->Resume();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

TEST_F(VirtioBlkPauseTest, AMoveWaitsForTheWayToARest) {
  Start(TwoThreads());
  for (const bool called_off : {false, true}) {
    HoldReads(1);
    BeginPause();
    Settle();
    const auto move = BeginMove(0, called_off ? 0 : 1);
    Settle();
    EXPECT_FALSE(move->over.HasBeenNotified());
    if (called_off) device_->Resume();
    ReleaseAndWait(1);
    move->over.WaitOrAbort();
    EXPECT_TRUE(move->status.ok());
    if (!called_off) {
      ASSERT_TRUE(SpinUntil([&] { return rests(); }));
      device_->Resume();
    }
    EXPECT_EQ(ServedBy(), IdOf(called_off ? 0 : 1));
  }
}

TEST_F(VirtioBlkPauseTest, AThreadThatCannotOpenTheDiskDoesNotGetIt) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  Pause();
  disk_->FailOpen(absl::ResourceExhaustedError("nobody may open anything"));
  EXPECT_EQ(MoveTo(1).code(), absl::StatusCode::kResourceExhausted);
  device_->Resume();
  EXPECT_EQ(ServedBy(), IdOf(0));
}

// As where it moves without a rest.
TEST_F(VirtioBlkPauseTest, AThreadThatCannotWatchItSendsItBackWhenItGoesOn) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  Pause();
  EXPECT_TRUE(MoveTo(1).ok());
  TestSource other(rig().kick);
  RunOn(*threads_[1], [&] { ASSERT_TRUE(threads_[1]->Attach(other, Phase::kTake).ok()); });
  device_->Resume();
  EXPECT_EQ(ServedBy(), IdOf(0));
  RunOn(*threads_[1], [&] { threads_[1]->Detach(other); });
}

TEST_F(VirtioBlkPauseTest, ABrokenQueueRestsToo) {
  Start({});
  HoldReads(1);
  // An available index further ahead than the ring is long.
  rig().queue().ring().SetAvailableIndex(
      static_cast<uint16_t>(rig().queue().available_index() + 1000));
  rig().kick.Signal();
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  BeginPause();
  disk_->Hold(false);
  disk_->ReleaseAll();
  ASSERT_TRUE(SpinUntil([&] { return rests(); }));
  device_->Resume();
  Reset();
}

}  // namespace
}  // namespace ringside::testing
