// Queues of virtio-blk that move from one I/O thread to another.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/devices/virtio_blk_move_fixture.h"

namespace ringside::testing {
namespace {

using VirtioBlkMoveTest = VirtioBlkMoveFixture;

TEST_F(VirtioBlkMoveTest, TheOtherThreadServesIt) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  for (const size_t thread : {1, 0, 1}) {
    EXPECT_TRUE(MoveTo(thread).ok());
    EXPECT_TRUE(IsOn(thread));
    EXPECT_EQ(ServedBy(), IdOf(thread));
  }
  EXPECT_EQ(disk_->channels(), 2u) << "one a thread, kept";
}

TEST_F(VirtioBlkMoveTest, ToWhereItIsIsDoneAtOnce) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  disk_->FailOpen(absl::ResourceExhaustedError("nobody may open anything"));
  EXPECT_TRUE(MoveTo(0).ok());
  EXPECT_EQ(ServedBy(), IdOf(0));
}

TEST_F(VirtioBlkMoveTest, MovesOneQueueAndNoOther) {
  Setting setting = TwoThreads();
  setting.queues = 4;
  Start(setting);
  EXPECT_TRUE(MoveTo(1, 2).ok());
  EXPECT_TRUE(IsOn(0, 0) && IsOn(1, 1) && IsOn(1, 2) && IsOn(1, 3));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rig(i).Run(driver(i).AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkMoveTest, ToAThreadTheDeviceHasNeverUsed) {
  Start({});
  threads_.push_back(*IoThread::Start("third"));
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_EQ(ServedBy(), IdOf(1));
  Reset();
  device_.reset();  // before that thread
}

TEST_F(VirtioBlkMoveTest, AResetOnTheWayLeavesTheThreadThatItCameFromFree) {
  Start(TwoThreads());
  HoldReads(1);
  const auto move = BeginMove(0, 1);
  Settle();  // the other thread is prepared
  BoundedEvent holds, release;
  TaskOf hold([&] {
    holds.Notify();
    release.WaitOrAbort();
  });
  threads_[1]->Post(hold);
  holds.WaitOrAbort();
  disk_->Hold(false);
  disk_->ReleaseAll();
  ASSERT_TRUE(SpinUntil([&] { return IsOn(1); }));
  std::thread reset([this] { Reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it most likely has begun
  release.Notify();
  reset.join();
  move->over.WaitOrAbort();
  EXPECT_FALSE(device_->Needs(*threads_[0]));
}

// For TSan. Its worker stays where it was, and ends there.
TEST_F(VirtioBlkMoveTest, WhoLooksAtOneThatRestsElsewhereMayComeAsItEnds) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  Pause();
  ASSERT_TRUE(MoveTo(1).ok());
  std::atomic<bool> is_over = false;
  std::thread looks([&] {
    do {
      RunOn(*threads_[1], [&] { device_->ExplainSignals(0); });
    } while (!is_over);
  });
  Reset();
  is_over = true;
  looks.join();
}

TEST_F(VirtioBlkMoveTest, WhatIsInFlightIsAnsweredFirstAndNothingIsTakenMeanwhile) {
  Start(TwoThreads());
  HoldReads(3);
  const auto move = BeginMove(0, 1);
  Settle();
  driver().AddFlush();  // the disk would have it at once
  rig().Publish();
  disk_->Release(1);
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk) << "shown while the queue is leaving";
  Settle();
  EXPECT_FALSE(move->over.HasBeenNotified());
  EXPECT_TRUE(IsOn(0));
  EXPECT_EQ(disk_->held(), 2u);
  disk_->Hold(false);
  disk_->ReleaseAll();
  move->over.WaitOrAbort();
  EXPECT_TRUE(move->status.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  EXPECT_EQ(device_->stats(0).requests(), 4u);
  EXPECT_EQ(ServedBy(), IdOf(1));
}

TEST_F(VirtioBlkMoveTest, WhatIsAnsweredInTheTurnItLeavesIsShown) {
  Start(TwoThreads());
  std::unique_ptr<Move> move;
  // Answered in this turn, while the move's steps are in the mailbox or on their way there.
  for (int round = 0; round < 500; ++round) {
    driver().Add(kBlkGetId, 0, {}, 20);
    driver().AddRead(0, 512);
    rig().Publish();
    ASSERT_TRUE(MoveTo(round % 2 == 0 ? 1 : 0).ok());
    for (int i = 0; i < 2; ++i) EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  }
}

// The new thread's own look finds what came while nobody watched.
TEST_F(VirtioBlkMoveTest, WhatCameMeanwhileNeedsNoKick) {
  for (const bool event_idx : {false, true}) {
    Setting setting = TwoThreads();
    setting.driver.queue.event_idx = event_idx;
    Start(setting);
    HoldReads(1);
    const auto move = BeginMove(0, 1);
    Settle();
    driver().AddRead(0, 512);
    rig().queue().Publish();
    EXPECT_TRUE(rig().queue().NeedsKick()) << "the old thread no longer looks";
    ReleaseAndWait(2);
    move->over.WaitOrAbort();
    EXPECT_EQ(ServedBy(), IdOf(1)) << "and from now on it does";
    Reset();
  }
}

// A thread that looks has told the driver not to kick; one that sleeps needs the kick.
TEST_F(VirtioBlkMoveTest, FromAThreadThatLooksToOneThatSleeps) {
  threads_.push_back(
      *IoThread::Start("looks", IoThread::Waiter::kEpoll, {.poll = {.kind = PollKind::kAlways}}));
  for (const bool event_idx : {false, true}) {
    Setting setting = TwoThreads();
    setting.driver.queue.event_idx = event_idx;
    Start(setting);
    for (int round = 0; round < 100; ++round) {
      ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
      LetTurn(*threads_[0], 5);
      ASSERT_TRUE(MoveTo(1).ok());
      Settle();
      ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
      ASSERT_TRUE(MoveTo(0).ok());
    }
    Reset();
  }
}

TEST_F(VirtioBlkMoveTest, ASecondMoveOfTheSameQueueWaitsItsTurn) {
  Start(TwoThreads());
  HoldReads(1);
  const auto move = BeginMove(0, 1);
  EXPECT_EQ(MoveTo(0).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MoveTo(1).code(), absl::StatusCode::kUnavailable);
  ReleaseAndWait(1);
  move->over.WaitOrAbort();
  EXPECT_TRUE(move->status.ok());
  EXPECT_TRUE(MoveTo(0).ok());
  EXPECT_EQ(move->times, 1);
  EXPECT_EQ(ServedBy(), IdOf(0));
}

// ---- With resets ----

TEST_F(VirtioBlkMoveTest, AQueueThatIsDownMovesForItsNextDriver) {
  Make(TwoThreads());
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_TRUE(IsOn(1));
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(1));
  Reset();
  EXPECT_TRUE(MoveTo(0).ok());
  MakeRigs();
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(0));
}

TEST_F(VirtioBlkMoveTest, AResetEndsAMoveAndShowsNothingMore) {
  Start(TwoThreads());
  HoldReads(2);
  const auto move = BeginMove(0, 1);
  Settle();
  BeginReset();
  Settle();
  EXPECT_FALSE(reset_done());
  EXPECT_FALSE(move->over.HasBeenNotified());
  disk_->Hold(false);
  disk_->ReleaseAll();
  WaitForReset();
  EXPECT_TRUE(move->over.HasBeenNotified()) << "before the reset is done";
  EXPECT_TRUE(move->status.ok());
  EXPECT_FALSE(rig().queue().HasUsed());
  MakeRigs();
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

TEST_F(VirtioBlkMoveTest, AMoveThatBeginsDuringAResetIsForTheNextDriver) {
  Start(TwoThreads());
  HoldReads(1);
  BeginReset();
  Settle();
  const auto move = BeginMove(0, 1);
  Settle();
  EXPECT_FALSE(move->over.HasBeenNotified());
  disk_->Hold(false);
  disk_->ReleaseAll();
  WaitForReset();
  move->over.WaitOrAbort();
  EXPECT_TRUE(move->status.ok());
  MakeRigs();
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

// ---- Of a queue that the thread has stopped looking at ----

TEST_F(VirtioBlkMoveTest, AParkedQueueIsResetWhileItIsKicked) {
  Start(TwoThreads());
  for (int round = 0; round < 3; ++round) {
    HoldOneUntilParked();
    BeginReset();
    rig().kick.Signal();
    LetTurn(*threads_[0]);
    EXPECT_FALSE(reset_done());
    disk_->Hold(false);
    disk_->ReleaseAll();
    WaitForReset();
    MakeRigs();
    Activate();
    EXPECT_EQ(ServedBy(), IdOf(0));
  }
}

TEST_F(VirtioBlkMoveTest, AParkedQueueIsMovedWhileItIsKicked) {
  Start(TwoThreads());
  HoldOneUntilParked();
  const auto move = BeginMove(0, 1);
  Settle();
  EXPECT_FALSE(move->over.HasBeenNotified());
  rig().kick.Signal();
  Settle();
  ReleaseAndWait(1);
  move->over.WaitOrAbort();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

// However the steps of both fall.
TEST_F(VirtioBlkMoveTest, MovesActivationsAndResetsMayMeetAnywhere) {
  Make(TwoThreads());
  size_t thread = 0;
  for (int round = 0; round < 3000; ++round) {
    std::unique_ptr<Move> move;
    const auto begin_at = [&](int point) {
      if (round % 4 == point) move = BeginMove(0, thread = 1 - thread);
    };
    MakeRigs();
    begin_at(0);
    Activate();
    begin_at(1);
    for (int i = 0; i < round / 4 % 3; ++i) driver().AddRead(0, 512);
    rig().Publish();
    if (round / 12 % 2 == 0) LetTurn(*threads_[round % 2], 1);
    begin_at(2);
    BeginReset();
    begin_at(3);
    WaitForReset();
    move->over.WaitOrAbort();
    EXPECT_TRUE(move->status.ok());
    EXPECT_TRUE(IsOn(thread));
    if (HasFailure()) break;
  }
  MakeRigs();
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(thread));
  EXPECT_TRUE(events_.reasons().empty());
}

// ---- What can go wrong ----

TEST_F(VirtioBlkMoveTest, AThreadThatCannotOpenTheDiskDoesNotGetIt) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  disk_->FailOpen(absl::ResourceExhaustedError("no more files"));
  EXPECT_EQ(MoveTo(1), absl::ResourceExhaustedError("no more files"));
  EXPECT_EQ(ServedBy(), IdOf(0));
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_EQ(ServedBy(), IdOf(1));
}

// An epoll watches a descriptor once: with another watch of it the queue cannot be attached.
TEST_F(VirtioBlkMoveTest, AThreadThatCannotWatchItSendsItBack) {
  Start(TwoThreads());
  TestSource other(rig().kick);
  RunOn(*threads_[1], [&] { ASSERT_TRUE(threads_[1]->Attach(other, Phase::kTake).ok()); });
  HoldReads(2);
  const auto move = BeginMove(0, 1);
  Settle();
  ReleaseAndWait(2);
  move->over.WaitOrAbort();
  EXPECT_FALSE(move->status.ok());
  EXPECT_TRUE(IsOn(0));
  EXPECT_EQ(ServedBy(), IdOf(0));
  RunOn(*threads_[1], [&] { threads_[1]->Detach(other); });
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_EQ(ServedBy(), IdOf(1));
  EXPECT_TRUE(events_.reasons().empty());
}

TEST_F(VirtioBlkMoveTest, AQueueThatNoThreadCanWatchNeedsAReset) {
  Start(TwoThreads());
  HoldReads(1);
  const auto move = BeginMove(0, 1);
  Settle();  // it is detached, and waits for the read
  TestSource other[2] = {TestSource(rig().kick), TestSource(rig().kick)};
  for (size_t i = 0; i < 2; ++i) {
    RunOn(*threads_[i], [&] { ASSERT_TRUE(threads_[i]->Attach(other[i], Phase::kTake).ok()); });
  }
  ReleaseAndWait(1);
  move->over.WaitOrAbort();
  EXPECT_FALSE(move->status.ok());
  EXPECT_EQ(events_.reasons().size(), 1u);
  for (size_t i = 0; i < 2; ++i) {
    RunOn(*threads_[i], [&] { threads_[i]->Detach(other[i]); });
  }
  Reset();
  MakeRigs();
  Activate();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkMoveTest, ABrokenQueueMovesAndStaysBroken) {
  Start(TwoThreads());
  HoldReads(2);
  rig().queue().ring().SetAvailableIndex(static_cast<uint16_t>(1000));
  rig().kick.Signal();
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  const auto move = BeginMove(0, 1);
  Settle();
  EXPECT_FALSE(move->over.HasBeenNotified());
  disk_->Hold(false);
  disk_->ReleaseAll();
  move->over.WaitOrAbort();
  EXPECT_TRUE(move->status.ok());
  Settle();
  EXPECT_FALSE(rig().queue().HasUsed());
  EXPECT_EQ(events_.reasons().size(), 1u);
  Reset();
  MakeRigs();
  Activate();
  EXPECT_EQ(ServedBy(), IdOf(1));
}

// ---- The latency trace ----

// Reads that are held, before a trace and while it is on, and a move in the middle of both.
TEST_F(VirtioBlkMoveTest, ATraceBeginsAndEndsInTheMiddleOfIo) {
  Start(TwoThreads());
  const auto set_trace = [&](size_t thread, std::unique_ptr<LatencyTrace> trace) {
    RunOn(*threads_[thread], [&] { trace = device_->SetTrace(0, std::move(trace)); });
    LetTurn(*threads_[thread]);
    return trace;
  };
  for (int round = 0; round < 3; ++round) {
    HoldReads(2);
    EXPECT_EQ(set_trace(0, device_->NewTrace(0)), nullptr);
    const auto move = BeginMove(0, 1);
    Settle();
    ReleaseAndWait(2);
    move->over.WaitOrAbort();
    driver().AddFlush();
    rig().Publish();
    ReleaseAndWait(1);
    HoldReads(1);
    const std::unique_ptr<LatencyTrace> trace = set_trace(1, nullptr);
    ASSERT_NE(trace, nullptr);
    ReleaseAndWait(1);
    ASSERT_EQ(trace->Records().size(), 1u) << "of the request that began and ended in it";
    EXPECT_EQ(trace->Records()[0].kind, RequestKind::kFlush);
    ASSERT_TRUE(MoveTo(0).ok());
  }
  const std::vector<LatencyHistogram> histograms = device_->stats(0).latencies.Read();
  ASSERT_EQ(histograms.size(), 1u);
  EXPECT_EQ(histograms[0].count(), 3u);
}

TEST_F(VirtioBlkMoveTest, TheTraceGoesOn) {
  Start(Traced());
  for (int round = 0; round < 20; ++round) {
    HoldReads(2);
    const auto move = BeginMove(0, round % 2 == 0 ? 1 : 0);
    Settle();
    driver().AddFlush();
    rig().Publish();
    ReleaseAndWait(3);
    move->over.WaitOrAbort();
  }
  Reset();
  const std::vector<LatencyRecord> records = device_->trace(0)->Records();
  ASSERT_EQ(records.size(), 60u);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& at = records[i].at_ns;
    EXPECT_TRUE(std::is_sorted(at.begin(), at.end() - (at.back() != 0 ? 0 : 1)))
        << ::testing::PrintToString(at);
    EXPECT_EQ(records[i].kind, i % 3 == 2 ? RequestKind::kFlush : RequestKind::kRead) << i;
  }
}

}  // namespace
}  // namespace ringside::testing
