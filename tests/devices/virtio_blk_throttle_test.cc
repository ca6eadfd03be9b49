// Queues of a disk with limits: what waits is left in the ring, through all that can come
// meanwhile.
#include "tests/support/devices/virtio_blk_move_fixture.h"
#include "tests/support/poll/waiters.h"

namespace ringside::testing {
namespace {

constexpr ThrottleLimits kHardlyAny = {.bps_total = {.average = 1}};

class VirtioBlkThrottleTest : public VirtioBlkMoveFixture {
 protected:
  // One read is done, and with it all that a disk of so low a limit may have; another waits.
  void StartAndWait(Setting setting = TwoThreads()) {
    throttle_.Set(kHardlyAny);
    setting.throttle = &throttle_;
    Start(setting);
    ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    head_ = driver().AddRead(8, 512);
    rig().Publish();
    ASSERT_TRUE(SpinUntil([&] { return device_->stats(0).throttle.waited.Get() == 1; }));
  }
  void ExpectItWaits() {
    Settle();
    EXPECT_EQ(device_->stats(0).reads.Get(), 1u);
    EXPECT_EQ(device_->in_flight(), 0u);
    EXPECT_FALSE(rig().queue().HasUsed());
  }
  // Once the limit is lifted.
  void ExpectItIsServed() {
    throttle_.Set({});
    const UsedElement used = rig().Wait();
    EXPECT_EQ(used.head, head_);
    EXPECT_EQ(driver().status(used.head), kBlkOk);
  }
  void Pause() {
    BoundedEvent rests;
    TaskOf done([&] { rests.Notify(); });
    device_->Pause(done);
    rests.WaitOrAbort();
  }

  DiskThrottle throttle_;
  uint16_t head_ = 0;
};

TEST_F(VirtioBlkThrottleTest, WhatDoesNotFitIsLeftInTheRing) {
  StartAndWait();
  ExpectItWaits();
  Pause();
  EXPECT_EQ(device_->Position(0), 1u);
  device_->Resume();
  ExpectItWaits();
  ExpectItIsServed();
}

TEST_F(VirtioBlkThrottleTest, TheThreadSleepsMeanwhile) {
  StartAndWait();
  const SleepObserver observer(*threads_[0]);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  const uint64_t turns = threads_[0]->stats().turns.Get();
  // With EVENT_IDX what comes behind it brings no kick.
  driver().AddRead(16, 512);
  rig().Publish();
  absl::SleepFor(absl::Milliseconds(350));
  EXPECT_LE(threads_[0]->stats().turns.Get() - turns, 30u) << "it looks at its limits now and then";
  ExpectItWaits();
  ExpectItIsServed();
  EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
}

TEST_F(VirtioBlkThrottleTest, WhatNeedsNoStorageGoesUntilThen) {
  throttle_.Set(kHardlyAny);
  Setting setting;
  setting.throttle = &throttle_;
  Start(setting);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(rig().Run(driver().Add(kBlkGetId, 0, {}, kBlkIdSize)), kBlkOk);
  EXPECT_EQ(device_->stats(0).throttle.waited.Get(), 0u);
}

TEST_F(VirtioBlkThrottleTest, AResetForgetsIt) {
  StartAndWait();
  Reset();
  EXPECT_EQ(device_->stats(0).reads.Get(), 1u);
  throttle_.Set({});
  MakeRigs();
  Activate();
  ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkThrottleTest, ItMovesToAnotherThreadAndWaitsThere) {
  StartAndWait();
  ASSERT_TRUE(MoveTo(1).ok());
  ExpectItWaits();
  ASSERT_TRUE(MoveTo(0).ok());
  Pause();
  ASSERT_TRUE(MoveTo(1).ok());
  device_->Resume();
  ExpectItWaits();
  EXPECT_EQ(device_->stats(0).throttle.waited.Get(), 1u) << "it keeps its place";
  ExpectItIsServed();
}

TEST_F(VirtioBlkThrottleTest, ItIsParkedWhileOthersAreBusy) {
  Setting setting = TwoThreads();
  setting.queues = 2;
  throttle_.Set({});
  setting.throttle = &throttle_;
  Start(setting);
  ASSERT_TRUE(MoveTo(0, 1).ok());
  throttle_.Set(kHardlyAny);
  ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  head_ = driver().AddRead(8, 512);
  rig().Publish();
  ASSERT_TRUE(SpinUntil([&] { return device_->stats(0).throttle.waited.Get() == 1; }));
  ASSERT_TRUE(SpinUntil([&] {
    LetTurn(*threads_[0], 10);
    return threads_[0]->stats().parked.Get() > 0;
  }));
  ExpectItIsServed();
}

// Each is charged to the queue's kind, and the order of the ring is kept.
TEST_F(VirtioBlkThrottleTest, WhatIsBehindItWaitsToo) {
  throttle_.Set({.bps_write = {.average = 1}});
  Setting setting;
  setting.throttle = &throttle_;
  Start(setting);
  ASSERT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkOk);
  driver().AddWrite(8, Pattern(512, 2));
  const uint16_t read = driver().AddRead(0, 512);
  rig().Publish();
  Settle();
  EXPECT_EQ(device_->stats(0).reads.Get(), 0u);
  throttle_.Set({});
  rig().Wait();
  EXPECT_EQ(rig().Wait().head, read);
}

TEST_F(VirtioBlkThrottleTest, OneThatWaitsGoesWithItsDevice) {
  StartAndWait();
  Reset();
  device_.reset();
  Settle();
}

}  // namespace
}  // namespace ringside::testing
