// Requests of virtio-blk that fail: answered, ignored, or kept until the queue has rested.
#include <gmock/gmock.h>

#include "tests/support/devices/virtio_blk_move_fixture.h"

namespace ringside::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Report = RecordingReports::Report;

class VirtioBlkKeptTest : public VirtioBlkMoveFixture {
 protected:
  static Setting On(ErrorAction rerror, ErrorAction werror) {
    return {.threads = 2, .rerror = rerror, .werror = werror};
  }
  static Setting Stopping() { return On(ErrorAction::kStop, ErrorAction::kStop); }

  uint16_t Add(BlockOp op) {
    switch (op) {
      case BlockOp::kRead:
        return driver().AddRead(16, 512);
      case BlockOp::kWrite:
        return driver().AddWrite(16, Pattern(512, 3));
      case BlockOp::kFlush:
        return driver().AddFlush();
      case BlockOp::kDiscard:
        return driver().AddRange(kBlkDiscard, {.sector = 16, .sectors = 1});
      case BlockOp::kWriteZeroes:
        return driver().AddRange(kBlkWriteZeroes, {16, 1, 0});
    }
    return 0;
  }
  // Of the request, while the disk fails all with this error: how it was answered, or kKept.
  static constexpr int kKept = 100;
  int OutcomeOf(BlockOp op, int error) {
    disk_->FailWith(error);
    const uint16_t head = Add(op);
    const uint64_t kept = device_->kept();
    rig().Publish();
    EXPECT_TRUE(SpinUntil([&] { return device_->kept() > kept || rig().queue().HasUsed(); }));
    disk_->FailWith(0);
    if (device_->kept() > kept) {
      EXPECT_TRUE(SpinUntil([&] { return reports_.HasAny(); }));  // it is told of behind that
      return kKept;
    }
    EXPECT_EQ(rig().Wait().head, head);
    return driver().status(head);
  }
  // Publishes this many writes, which fail.
  void KeepWrites(size_t count, uint32_t bytes = 512) {
    disk_->FailWith(ENOSPC);
    for (size_t i = 0; i < count; ++i)
      driver().AddWrite(64 * i, Pattern(bytes, static_cast<int>(i)));
    rig().Publish();
    ASSERT_TRUE(SpinUntil([&] { return device_->kept() == count; }));
    EXPECT_FALSE(rig().queue().HasUsed());
  }
  // Mends the disk and goes on; all are answered once.
  void GoOnAndWait(size_t count) {
    disk_->FailWith(0);
    device_->Resume();
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
    EXPECT_EQ(device_->kept(), 0u);
    Settle();
    EXPECT_FALSE(rig().queue().HasUsed());
  }
};

constexpr std::array kAll = {BlockOp::kRead, BlockOp::kWrite, BlockOp::kFlush, BlockOp::kDiscard,
                             BlockOp::kWriteZeroes};

TEST_F(VirtioBlkKeptTest, EachActionDoesWhatItsNameSays) {
  struct Case {
    ErrorAction action;
    int io_error, no_space;
  };
  for (const auto& [action, io_error, no_space] :
       {Case{ErrorAction::kReport, kBlkIoError, kBlkIoError},
        Case{ErrorAction::kIgnore, kBlkOk, kBlkOk}, Case{ErrorAction::kStop, kKept, kKept},
        Case{ErrorAction::kEnospc, kBlkIoError, kKept}}) {
    Start(On(action, action));
    for (const BlockOp op : kAll) {
      EXPECT_EQ(OutcomeOf(op, EIO), io_error);
      EXPECT_THAT(reports_.Take(), ElementsAre(Report{op, EIO, io_error == kKept}));
      EXPECT_EQ(OutcomeOf(op, ENOSPC), no_space);
      EXPECT_THAT(reports_.Take(), ElementsAre(Report{op, ENOSPC, no_space == kKept}));
    }
    const uint64_t kept =
        (io_error == kKept ? kAll.size() : 0) + (no_space == kKept ? kAll.size() : 0);
    EXPECT_EQ(device_->stats(0).errors.Get(), 2 * kAll.size() - kept);
    EXPECT_EQ(device_->kept(), kept);
    Reset();
  }
}

TEST_F(VirtioBlkKeptTest, ReadsHaveAnActionAndAllOthersHaveOne) {
  for (const bool reads : {false, true}) {
    Start(reads ? On(ErrorAction::kStop, ErrorAction::kReport)
                : On(ErrorAction::kReport, ErrorAction::kStop));
    for (const BlockOp op : kAll) {
      EXPECT_EQ(OutcomeOf(op, EIO), (op == BlockOp::kRead) == reads ? kKept : kBlkIoError);
    }
    Reset();
  }
}

// A driver that hears of it discards no more; kept, it would fail for ever.
TEST_F(VirtioBlkKeptTest, WhatTheDiskCannotDiscardIsAnswered) {
  for (const ErrorAction action : {ErrorAction::kStop, ErrorAction::kIgnore}) {
    Start(On(action, action));
    EXPECT_EQ(OutcomeOf(BlockOp::kDiscard, EOPNOTSUPP), kBlkUnsupported);
    EXPECT_EQ(OutcomeOf(BlockOp::kWriteZeroes, EOPNOTSUPP), kBlkUnsupported);
    Reset();
  }
  Start(Stopping());
  EXPECT_EQ(OutcomeOf(BlockOp::kWrite, EOPNOTSUPP), kKept);
}

TEST_F(VirtioBlkKeptTest, AfterTheRestItIsTriedAgainAndAnsweredOnce) {
  for (const bool traced : {false, true}) {
    Setting setting = Stopping();
    setting.trace_latency = traced;
    Start(setting);
    KeepWrites(3);
    EXPECT_EQ(device_->in_flight(), 0u);
    disk_->FailWith(0);
    EXPECT_EQ(rig().Run(driver().AddRead(8, 512)), kBlkOk) << "others go on";
    Pause();
    EXPECT_THAT(std::string(Message(device_->CheckSaved())), HasSubstr("3 requests that failed"));
    EXPECT_EQ(disk_->Content(0, 512), std::vector<std::byte>(512));
    GoOnAndWait(3);
    EXPECT_TRUE(device_->CheckSaved().ok());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(disk_->Content(static_cast<uint64_t>(i) * 64 * 512, 512), Pattern(512, i));
    }
    EXPECT_EQ(disk_->submitted(), 7u);
    EXPECT_EQ(device_->stats(0).requests(), 4u);
    EXPECT_EQ(device_->stats(0).errors.Get(), 0u);
    Reset();
  }
}

TEST_F(VirtioBlkKeptTest, WhatWasMovedIsTriedAgainWhereItBelongs) {
  Start(Stopping());
  disk_->MoveBy(4096);
  KeepWrites(2);
  Pause();
  GoOnAndWait(2);
  disk_->MoveBy(0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(disk_->Content(static_cast<uint64_t>(i) * 64 * 512 + 4096, 512), Pattern(512, i));
  }
}

TEST_F(VirtioBlkKeptTest, WhatFailsAgainIsKeptAgain) {
  Start(Stopping());
  KeepWrites(2);
  for (int round = 1; round < 10; ++round) {
    Pause();
    EXPECT_THAT(reports_.Take(), ElementsAre(Report{BlockOp::kWrite, ENOSPC, true},
                                             Report{BlockOp::kWrite, ENOSPC, true}));
    device_->Resume();
    ASSERT_TRUE(SpinUntil([&] { return disk_->submitted() == 2 + 2u * round; }));
    ASSERT_TRUE(SpinUntil([&] { return device_->kept() == 2; }));
  }
  Pause();
  GoOnAndWait(2);
}

TEST_F(VirtioBlkKeptTest, WhatFailsOnTheWayToTheRestIsKeptToo) {
  Start(Stopping());
  HoldReads(3);
  BeginPause();
  Settle();
  EXPECT_FALSE(rests());
  disk_->Hold(false);
  disk_->FailWith(EIO);
  disk_->ReleaseAll();
  ASSERT_TRUE(SpinUntil([&] { return rests(); }));
  EXPECT_EQ(device_->kept(), 3u);
  EXPECT_FALSE(rig().queue().HasUsed());
  GoOnAndWait(3);
}

// The queue looks idle when the only request is kept, and has an answer to show by the time that it
// comes to rest: who is told of the rest finds the answer, and nothing is shown later.
TEST_F(VirtioBlkKeptTest, ItRestsWhenAllIsShown) {
  Start(Stopping());
  disk_->FailWith(ENOSPC);
  IoThread& thread = *threads_[0];
  BoundedEvent rests;
  bool shown = false;
  TaskOf rested([&] {
    shown = rig().queue().HasUsed();
    rests.Notify();
  });
  // Takes the place of the end of this turn, so that the write fails in the next one.
  TestHook published([] {});
  TaskOf answer_and_pause([&] {
    driver().Add(kBlkGetId, 0, {}, 20);
    rig().Publish();
    device_->Pause(rested);
  });
  RunOn(thread, [&] {
    driver().AddWrite(0, Pattern(512, 1));
    rig().Publish();
    thread.AtPublish(published);
    thread.Post(answer_and_pause);
  });
  rests.WaitOrAbort();
  EXPECT_EQ(device_->kept(), 1u);
  EXPECT_TRUE(shown);
  GoOnAndWait(2);
}

TEST_F(VirtioBlkKeptTest, ItIsTriedAgainWhereTheQueueHasMovedTo) {
  Start(Stopping());
  KeepWrites(2);
  Pause();
  EXPECT_TRUE(MoveTo(1).ok());
  EXPECT_EQ(device_->kept(), 2u);
  std::thread::id served;
  disk_->OnSubmit([&] { served = std::this_thread::get_id(); });
  GoOnAndWait(2);
  EXPECT_EQ(served, IdOf(1));
  disk_->OnSubmit(nullptr);
}

// A move ends with the same look at what is there to be begun anew.
TEST_F(VirtioBlkKeptTest, AMoveBeforeTheRestLosesNothing) {
  Start(Stopping());
  KeepWrites(2);
  EXPECT_TRUE(MoveTo(1).ok());
  ASSERT_TRUE(SpinUntil([&] { return disk_->submitted() == 4; }));
  ASSERT_TRUE(SpinUntil([&] { return device_->kept() == 2; }));
  EXPECT_FALSE(rig().queue().HasUsed());
  Pause();
  GoOnAndWait(2);
}

TEST_F(VirtioBlkKeptTest, AResetForgetsThem) {
  for (const bool rests : {false, true}) {
    Setting setting = Stopping();
    setting.driver = {.queue = {.size = 64, .indirect = true, .table_entries = 64},
                      .max_bytes = 16384,
                      .segment = 512};
    Start(setting);
    KeepWrites(3, 16384);  // more segments than a slot has
    if (rests) Pause();
    Reset();
    EXPECT_EQ(device_->kept(), 0u);
    EXPECT_EQ(disk_->submitted(), 3u);
    EXPECT_FALSE(rig().queue().HasUsed());
    if (rests) device_->Resume();
    disk_->FailWith(0);
    MakeRigs();
    Activate();
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    EXPECT_EQ(disk_->submitted(), 4u);
    Reset();
  }
}

// As many as there are in flight, in the places that they had there.
TEST_F(VirtioBlkKeptTest, AWholeRingOfThemIsKept) {
  Setting setting = Stopping();
  setting.driver = {.queue = {.size = 256, .indirect = true, .table_entries = 4}};
  Start(setting);
  KeepWrites(60);
  Pause();
  GoOnAndWait(60);
  EXPECT_THAT(events_.reasons(), IsEmpty());
}

}  // namespace
}  // namespace ringside::testing
