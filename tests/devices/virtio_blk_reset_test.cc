// virtio-blk coming up and going down, with requests in flight.
#include <algorithm>
#include <thread>

#include "block/block_filter.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/test_source.h"

namespace ringside::testing {
namespace {

class VirtioBlkResetTest : public VirtioBlkFixture {
 protected:
  std::vector<uint8_t> Memory() const { return PeekBytes(*memory_, 0, 16 * kMiB); }
};

TEST_F(VirtioBlkResetTest, WaitsForWhatTheDiskStillHas) {
  Start({.queues = 2, .threads = 2});
  disk_->Hold(true);
  for (int i = 0; i < 2; ++i) {
    driver(i).AddRead(0, 4096);
    driver(i).AddWrite(8, Pattern(512, i));
    rig(i).Publish();
  }
  ASSERT_TRUE(disk_->WaitForHeld(4));
  BeginReset();
  for (int left = 4; left > 0; --left) {
    Settle();
    EXPECT_FALSE(reset_done());
    disk_->Release(static_cast<size_t>(left) / 2);
  }
  WaitForReset();
  device_.reset();
  EXPECT_EQ(disk_->channels(), 0u);
}

TEST_F(VirtioBlkResetTest, TellsTheGuestNothingMore) {
  Start({});
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  disk_->Hold(true);
  const uint16_t write = driver().AddWrite(8, Pattern(512, 1));
  const uint16_t read = driver().AddRead(8, 512);
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(2));
  rig().call.Clear();
  BeginReset();
  Settle();
  disk_->ReleaseAll();
  WaitForReset();
  EXPECT_FALSE(rig().queue().HasUsed());
  EXPECT_EQ(driver().status(write), BlkDriver::kNoStatus);
  EXPECT_EQ(driver().status(read), BlkDriver::kNoStatus);
  EXPECT_EQ(rig().call.Clear(), 0u);
}

// The turn it comes in ends as any other; after that the guest sees nothing.
TEST_F(VirtioBlkResetTest, ShowsNothingMoreAfterTheTurnItComesIn) {
  Start({});
  disk_->Hold(true);
  BoundedEvent submitted, stopping;
  disk_->OnSubmit([&] {
    submitted.Notify();
    stopping.WaitOrAbort();
  });
  driver().Add(kBlkGetId, 0, {}, 20);  // answered before the read is submitted
  driver().AddRead(0, 512);
  rig().Publish();
  submitted.WaitOrAbort();
  BeginReset();
  stopping.Notify();
  Settle();
  const std::vector<uint8_t> shown = Memory();
  disk_->ReleaseAll();
  WaitForReset();
  EXPECT_TRUE(Memory() == shown);
  EXPECT_EQ(rig().call.Clear(), 1u);
}

TEST_F(VirtioBlkResetTest, LeavesGuestMemoryAloneOnceItIsDone) {
  for (const bool event_idx : {false, true}) {
    Start({.driver = {.queue = {.size = 64, .event_idx = event_idx}}});
    for (int i = 0; i < 10; ++i) EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    Reset();
    for (int i = 0; i < 5; ++i) driver().AddRead(0, 512);
    rig().queue().Publish();
    const std::vector<uint8_t> before = Memory();
    for (int i = 0; i < 5; ++i) {
      rig().kick.Signal();
      Settle();
    }
    EXPECT_TRUE(Memory() == before);
  }
}

TEST_F(VirtioBlkResetTest, DropsWhatWasNotTaken) {
  Start({});
  for (int round = 0; round < 200; ++round) {
    // Published while the thread may be asleep, awake or already stopping.
    for (int i = 0; i < 20; ++i) driver().AddWrite(i, Pattern(512, round));
    rig().Publish();
    BeginReset();
    WaitForReset();
    MakeRigs();
    Activate();
  }
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
}

TEST_F(VirtioBlkResetTest, AndActivationMayFollowEachOtherForEver) {
  Make({.queues = 3, .threads = 2});
  for (int round = 0; round < 300; ++round) {
    setting_.driver.queue.event_idx = round % 2 == 0;
    MakeRigs();
    Activate();
    // Sometimes at once, sometimes after some work.
    for (int i = 0; i < round % 4; ++i) {
      ASSERT_EQ(rig(i % 3).Run(driver(i % 3).AddWrite(i, Pattern(512, round))), kBlkOk);
    }
    Reset();
  }
  EXPECT_EQ(disk_->channels(), 2u) << "one a thread, kept";
  EXPECT_EQ(device_->stats(0).writes.Get() + device_->stats(1).writes.Get() +
                device_->stats(2).writes.Get(),
            75u * (1 + 2 + 3))
      << "counted over the device's life";
  EXPECT_TRUE(events_.reasons().empty());
}

TEST_F(VirtioBlkResetTest, OfQueuesThatWereNeverEnabledIsDone) {
  Make({.queues = 2, .threads = 2});
  for (int round = 0; round < 100; ++round) {
    device_->Activate(features(), {}, events_);
    Reset();
    MakeRigs();
    const std::vector<QueueSetup> second = {rig(1).Setup(1)};
    device_->Activate(features(), second, events_);
    ASSERT_EQ(rig(1).Run(driver(1).AddRead(0, 512)), kBlkOk);
    Reset();
  }
}

TEST_F(VirtioBlkResetTest, WithASmallerRingAfterALargerOne) {
  for (const uint16_t size : {256, 2, 64, 1, 16}) {
    Start({.driver = {.queue = {.size = size, .indirect = true}}});
    for (int i = 0; i < 300; ++i) ASSERT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    Reset();
  }
}

TEST_F(VirtioBlkResetTest, MendsADiskThatCouldNotBeOpened) {
  Make({.queues = 2, .threads = 2});
  disk_->FailOpen(absl::ResourceExhaustedError("no more files"));
  Activate();
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  EXPECT_EQ(events_.reasons(), std::vector<std::string>{"no more files"});
  for (int i = 0; i < 2; ++i) {
    driver(i).AddRead(0, 512);
    rig(i).Publish();
  }
  Settle();
  Reset();
  MakeRigs();
  Activate();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(rig(i).Run(driver(i).AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(events_.reasons().size(), 1u);
}

TEST_F(VirtioBlkResetTest, OfOneDeviceDoesNotDisturbAnother) {
  Make({});
  MemoryDisk other_disk({.size = kDiskSize});
  VirtioBlk other(other_disk, *memory_, {threads_[0].get()}, {});
  QueueRig other_rig(*memory_, {.queue = {.size = 16, .address = 32 * kMiB}});
  const std::vector<QueueSetup> setups = {other_rig.Setup(0)};
  other.Activate(other_rig.queue().features(), setups, events_);
  for (int round = 0; round < 100; ++round) {
    MakeRigs();
    Activate();
    disk_->Hold(true);
    driver().AddRead(0, 512);
    rig().Publish();
    ASSERT_TRUE(disk_->WaitForHeld(1));
    BeginReset();
    ASSERT_EQ(other_rig.Run(other_rig.driver.AddRead(0, 512)), kBlkOk);
    disk_->ReleaseAll();
    WaitForReset();
  }
  ResetDone done;
  other.Reset(done.task);
  done.event.WaitOrAbort();
}

// A disk whose channels have something to do at the end of the turn that cancels them.
class HookOnCancel final : public BlockFilter {
 public:
  explicit HookOnCancel(std::unique_ptr<BlockDevice> below) : BlockFilter(std::move(below)) {}

  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override {
    has_channel = true;
    return std::make_unique<Channel>(*this, io_thread);
  }

  bool has_channel = false;  // the I/O thread's
  bool ran_without = false;

 private:
  class Channel final : public BlockChannel {
   public:
    Channel(HookOnCancel& device, IoThread& io_thread) : device_(device), io_thread_(io_thread) {}
    ~Channel() override { device_.has_channel = false; }
    void Submit(BlockRequest& /*request*/) override { abort(); }
    void Cancel() override { io_thread_.AtPublish(device_.hook_); }

   private:
    HookOnCancel& device_;
    IoThread& io_thread_;
  };

  TestHook hook_{[this] { ran_without |= !has_channel; }};
};

// The I/O thread was held up by something else for so long that it hears of both at once.
TEST_F(VirtioBlkResetTest, AChannelStaysForTheTurnThatCancelsIt) {
  Make({});
  HookOnCancel disk(std::make_unique<MemoryDisk>(setting_.info));
  device_ = std::make_unique<VirtioBlk>(disk, *memory_, std::vector{threads_[0].get()},
                                        VirtioBlkConfig());
  Activate();
  Reset();
  BoundedEvent is_held, goes_on;
  TaskOf hold([&] {
    is_held.Notify();
    goes_on.WaitOrAbort();
  });
  threads_[0]->Post(hold);
  is_held.WaitOrAbort();
  device_->Cancel();
  std::thread end([&] { device_.reset(); });
  absl::SleepFor(absl::Milliseconds(20));
  goes_on.Notify();
  end.join();
  EXPECT_FALSE(disk.ran_without);
}

}  // namespace
}  // namespace ringside::testing
