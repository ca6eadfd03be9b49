// virtio-blk over a disk that takes its time by itself: what is in flight when a queue moves or is
// reset comes to its end without anyone's help.
#include "base/clock.h"
#include "block/null_device.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/waiters.h"

namespace ringside::testing {
namespace {

// Long enough for the queue to be told to go meanwhile on a machine that is busy.
constexpr int64_t kLatencyNs = 300'000'000;
constexpr int kReads = 3;

class VirtioBlkDelayTest : public VirtioBlkFixture,
                           public ::testing::WithParamInterface<IoThread::Waiter> {
 protected:
  void TearDown() override {
    if (active_) Reset();
    device_.reset();  // before the disk it has channels to
  }
  // A queue on the first of two threads, and reads in flight.
  void StartReads(PollKind poll) {
    Make({.threads = 2, .waiter = GetParam()});
    for (const auto& thread : threads_) {
      RunOn(*thread, [&] { thread->SetPoll({.kind = poll}); });
    }
    null_disk_ = *NullDevice::Create({.size = kDiskSize, .latency_ns = kLatencyNs});
    device_ = std::make_unique<VirtioBlk>(*null_disk_, *memory_,
                                          std::vector{threads_[0].get(), threads_[1].get()},
                                          VirtioBlkConfig{.serial = "slow", .queues = 1});
    Activate();
    for (int i = 0; i < kReads; ++i) driver().AddRead(8, 512);
    start_ns_ = MonotonicNs();
    rig().Publish();
    Settle();
  }

  std::unique_ptr<NullDevice> null_disk_;
  int64_t start_ns_ = 0;
};
RINGSIDE_WITH_BOTH_WAITERS(VirtioBlkDelayTest);

TEST_P(VirtioBlkDelayTest, AResetWaitsAndTheGuestSeesNothing) {
  for (const PollKind poll : {PollKind::kNever, PollKind::kAlways}) {
    StartReads(poll);
    BeginReset();
    LetTurn(*threads_[0], 1);
    const bool in_time =
        MonotonicNs() - start_ns_ < kLatencyNs;  // else they may have been answered
    WaitForReset();
    EXPECT_GE(MonotonicNs() - start_ns_, kLatencyNs);
    EXPECT_FALSE(in_time && rig().queue().HasUsed());
    device_.reset();
  }
}

TEST_P(VirtioBlkDelayTest, AQueueMovesOnceTheyAreAnswered) {
  for (const PollKind poll : {PollKind::kNever, PollKind::kAlways}) {
    StartReads(poll);
    BoundedEvent moved;
    device_->MoveQueue(0, *threads_[1], [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      moved.Notify();
    });
    moved.WaitOrAbort();
    EXPECT_GE(MonotonicNs() - start_ns_, kLatencyNs);
    for (int i = 0; i < kReads; ++i) EXPECT_EQ(driver().status(rig().Wait().head), kBlkOk);
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    EXPECT_EQ(&device_->io_thread(0), threads_[1].get());
    Reset();
    device_.reset();
  }
}

}  // namespace
}  // namespace ringside::testing
