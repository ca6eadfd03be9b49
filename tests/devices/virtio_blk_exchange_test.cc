// The disk behind a virtio-blk device exchanged for another one while a driver uses it.
#include "tests/support/devices/virtio_blk_move_fixture.h"

namespace ringside::testing {
namespace {

class VirtioBlkExchangeTest : public VirtioBlkMoveFixture {
 protected:
  ~VirtioBlkExchangeTest() override {
    if (active_) Reset();
    device_.reset();  // before the disk it has channels to
  }
  void BeginRest() {
    exchange_rests_ = std::make_unique<BoundedEvent>();
    device_->BeginExchange(exchange_rest_);
  }
  bool exchange_rests() const { return exchange_rests_->HasBeenNotified(); }
  absl::Status Exchange(MemoryDisk& next) {
    BeginRest();
    exchange_rests_->WaitOrAbort();
    const absl::Status status = device_->Exchange(next);
    device_->EndExchange();
    return status;
  }

  MemoryDisk next_{{.size = kDiskSize, .can_discard = true}};

 private:
  void Notify() { exchange_rests_->Notify(); }

  std::unique_ptr<BoundedEvent> exchange_rests_;
  TaskTo<VirtioBlkExchangeTest, &VirtioBlkExchangeTest::Notify> exchange_rest_{*this};
};

TEST_F(VirtioBlkExchangeTest, WhatFollowsGoesToTheOtherDisk) {
  Start({.queues = 2, .threads = 2});
  for (size_t queue = 0; queue < 2; ++queue) {
    ASSERT_EQ(rig(queue).Run(driver(queue).AddWrite(8 * queue, Pattern(512, 1))), kBlkOk);
  }
  EXPECT_EQ(disk_->channels(), 2u);
  ASSERT_TRUE(Exchange(next_).ok());
  EXPECT_EQ(disk_->channels(), 0u) << "nothing uses it any more";
  EXPECT_EQ(next_.channels(), 2u);
  for (size_t queue = 0; queue < 2; ++queue) {
    ASSERT_EQ(rig(queue).Run(driver(queue).AddWrite(8 * queue, Pattern(512, 2))), kBlkOk);
    EXPECT_EQ(next_.Content(8 * queue * 512, 512), Pattern(512, 2));
    EXPECT_EQ(disk_->Content(8 * queue * 512, 512), Pattern(512, 1));
  }
  EXPECT_EQ(device_->stats(0).requests(), 2u) << "its counters go on";
  ASSERT_TRUE(Exchange(*disk_).ok()) << "and back";
  ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(next_.channels(), 0u);
}

TEST_F(VirtioBlkExchangeTest, AnEntryOfMeanwhileIsFound) {
  Start({});
  BeginRest();
  ASSERT_TRUE(SpinUntil([&] { return exchange_rests(); }));
  driver().AddRead(0, 512);
  rig().queue().Publish();  // no kick
  ASSERT_TRUE(device_->Exchange(next_).ok());
  device_->EndExchange();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  EXPECT_EQ(next_.submitted(), 1u);
}

TEST_F(VirtioBlkExchangeTest, WhatWasKeptIsTriedOnTheOtherDisk) {
  Start({.werror = ErrorAction::kStop});
  disk_->FailWith(EIO);
  driver().AddWrite(8, Pattern(512, 5));
  rig().Publish();
  ASSERT_TRUE(SpinUntil([&] { return device_->kept() == 1; }));
  ASSERT_TRUE(Exchange(next_).ok());
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  EXPECT_EQ(next_.Content(8 * 512, 512), Pattern(512, 5));
  EXPECT_EQ(device_->kept(), 0u);
}

TEST_F(VirtioBlkExchangeTest, OneThatCannotBeOpenedChangesNothing) {
  Start({.queues = 2, .threads = 2});
  for (size_t queue = 0; queue < 2; ++queue) {
    ASSERT_EQ(rig(queue).Run(driver(queue).AddRead(0, 512)), kBlkOk);
  }
  next_.FailOpen(absl::ResourceExhaustedError("nobody may open anything"));
  EXPECT_EQ(Exchange(next_).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(next_.channels(), 0u);
  const uint64_t before = disk_->submitted();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(disk_->submitted(), before + 1);
}

TEST_F(VirtioBlkExchangeTest, BeforeTheDriverComesTooOneThatCannotBeOpenedIsRefused) {
  Make({.queues = 2, .threads = 2});
  next_.FailOpen(absl::ResourceExhaustedError("nobody may open anything"));
  EXPECT_EQ(Exchange(next_).code(), absl::StatusCode::kResourceExhausted);
  Activate();
  EXPECT_EQ(rig(1).Run(driver(1).AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(disk_->submitted(), 1u);
}

TEST_F(VirtioBlkExchangeTest, OneThatWaitsTooLongIsCalledOff) {
  Start({});
  HoldReads(2);
  BeginRest();
  Settle();
  EXPECT_FALSE(exchange_rests());
  device_->EndExchange();
  EXPECT_TRUE(exchange_rests()) << "whoever waits is told";
  disk_->Hold(false);
  EXPECT_EQ(rig().Run(driver().AddRead(64, 512)), kBlkOk) << "beside those that hang";
  ReleaseAndWait(2);
}

TEST_F(VirtioBlkExchangeTest, ThePausedMachineStaysSo) {
  Start({});
  for (const bool paused_first : {false, true}) {
    if (paused_first) Pause();
    BeginRest();
    ASSERT_TRUE(SpinUntil([&] { return exchange_rests(); }));
    if (!paused_first) Pause();
    ASSERT_TRUE(device_->Exchange(paused_first ? *disk_ : next_).ok());
    driver().AddRead(0, 512);
    rig().Publish();
    if (paused_first) {
      device_->EndExchange();
    } else {
      device_->Resume();
    }
    const uint64_t before = device_->stats(0).requests();
    Settle();
    EXPECT_EQ(device_->stats(0).requests(), before) << "the other still wants it to rest";
    if (paused_first) {
      device_->Resume();
    } else {
      device_->EndExchange();
    }
    EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
  }
  EXPECT_EQ(next_.submitted(), 1u);
  EXPECT_EQ(disk_->submitted(), 1u);
}

// On the way there one is called off, and the other comes to its rest all the same.
TEST_F(VirtioBlkExchangeTest, EachHasItsOwnWayToTheRest) {
  Start({});
  for (const bool exchange_is_called_off : {false, true}) {
    HoldReads(1);
    BeginPause();
    BeginRest();
    Settle();
    if (exchange_is_called_off) {
      device_->EndExchange();
      EXPECT_TRUE(exchange_rests());
      EXPECT_FALSE(rests());
    } else {
      device_->Resume();
      EXPECT_TRUE(rests());
      EXPECT_FALSE(exchange_rests());
    }
    ReleaseAndWait(1);
    ASSERT_TRUE(SpinUntil([&] { return rests() && exchange_rests(); }));
    if (exchange_is_called_off) {
      device_->Resume();
    } else {
      device_->EndExchange();
    }
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  }
}

// Both are told by the same step: who calls off its own has been told by the time that it is back.
TEST_F(VirtioBlkExchangeTest, NobodyIsToldOfARestThatItHasCalledOff) {
  Start({});
  HoldReads(1);
  BoundedEvent machine_is_told, goes_on;
  TaskOf told([&] {
    machine_is_told.Notify();
    goes_on.WaitOrAbort();
  });
  device_->Pause(told);
  BeginRest();
  disk_->Hold(false);
  std::thread release([&] { disk_->ReleaseAll(); });
  machine_is_told.WaitOrAbort();
  std::atomic<bool> called_off{false};
  std::thread exchange([&] {
    device_->EndExchange();
    EXPECT_TRUE(exchange_rests());
    called_off = true;
  });
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(called_off);
  goes_on.Notify();
  release.join();
  exchange.join();
  device_->Resume();
}

TEST_F(VirtioBlkExchangeTest, AQueueThatMovedAtItsRestGoesOnWhereItIs) {
  Start(TwoThreads());
  EXPECT_EQ(ServedBy(), IdOf(0));
  Pause();
  EXPECT_TRUE(MoveTo(1).ok());
  ASSERT_TRUE(Exchange(next_).ok());
  std::thread::id served;
  next_.OnSubmit([&] { served = std::this_thread::get_id(); });
  device_->Resume();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(served, IdOf(1));
}

TEST_F(VirtioBlkExchangeTest, ADriverThatBeginsOrEndsMeanwhileFindsTheOther) {
  Make({});
  BeginRest();
  Activate();
  ASSERT_TRUE(device_->Exchange(next_).ok());
  device_->EndExchange();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(next_.submitted(), 1u);
  BeginRest();
  Reset();
  ASSERT_TRUE(SpinUntil([&] { return exchange_rests(); }));
  ASSERT_TRUE(device_->Exchange(*disk_).ok());
  device_->EndExchange();
  MakeRigs();
  Activate();
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(disk_->submitted(), 1u);
}

TEST_F(VirtioBlkExchangeTest, ADiskThatHasGrownTakesRequestsUpToItsEnd) {
  Start({});
  constexpr uint64_t kBeyond = kDiskSize / 512;
  EXPECT_EQ(rig().Run(driver().AddRead(kBeyond, 512)), kBlkIoError);
  MemoryDisk larger({.size = kDiskSize + 512, .can_discard = true});
  ASSERT_TRUE(Exchange(larger).ok());
  EXPECT_EQ(rig().Run(driver().AddRead(kBeyond, 512)), kBlkIoError) << "the driver was not told";
  device_->SetSize(kDiskSize + 512);
  EXPECT_EQ(rig().Run(driver().AddRead(kBeyond, 512)), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRead(kBeyond + 1, 512)), kBlkIoError);
  std::array<std::byte, 8> capacity = {};
  device_->ReadConfig(0, capacity);
  EXPECT_EQ(std::bit_cast<uint64_t>(capacity), kBeyond + 1);
  ASSERT_TRUE(Exchange(next_).ok());
}

}  // namespace
}  // namespace ringside::testing
