// A thread that serves many machines takes a share of a queue's requests in a turn, so that its
// neighbours wait for no more than that. What they wait for is counted in requests and in bytes, by
// the order in which the disks are given them.
#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "devices/virtio_blk.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/devices/virtio_blk_rig.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"

namespace ringside::testing {
namespace {

constexpr uint16_t kDepth = 128;

// A machine as far as the thread knows of it.
class OneMachine {
 public:
  OneMachine(IoThread& io_thread, uint32_t max_bytes)
      : memory_(MakeMemory(160 * kMiB)),
        rig_(*memory_, {.queue = {.size = 2 * kDepth, .indirect = true, .event_idx = true},
                        .max_bytes = max_bytes,
                        .segment = max_bytes}),
        device_(disk_, *memory_, {&io_thread}, {}) {
    disk_.KeepRecords(false);
    const QueueSetup setup = rig_.Setup(0);
    device_.Activate(rig_.queue().features() | kVirtioVersion1, {&setup, 1}, events_);
  }
  ~OneMachine() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_.Reset(task);
    done.WaitOrAbort();
  }
  void Add(uint32_t bytes, int count = 1) {
    for (int i = 0; i < count; ++i) rig_.driver.AddRead(0, bytes);
  }
  // Takes what was answered, and asks for as much again.
  void Refill(uint32_t bytes) {
    while (rig_.queue().TakeUsed().has_value()) Add(bytes);
    rig_.Publish();
  }
  void Drain(size_t count) {
    for (size_t i = 0; i < count; ++i) rig_.Wait();
  }
  QueueRig& rig() { return rig_; }
  MemoryDisk& disk() { return disk_; }

 private:
  const std::unique_ptr<GuestMemory> memory_;
  MemoryDisk disk_{{.size = 4 * kMiB}};
  RecordingVirtioEvents events_;
  QueueRig rig_;
  VirtioBlk device_;
};

class SharedThreadTest : public WaiterTest {
 protected:
  void SetUp() override {
    WaiterTest::SetUp();
    if (IsSkipped()) return;
    io_thread_ = *IoThread::Start("shared", GetParam(), {}, IoThread::Serves::kManyMachines);
  }
  // All of it is there before the thread looks.
  template <typename Function>
  void WhileTheThreadIsHeld(Function function) {
    BoundedEvent held, go_on;
    TaskOf hold([&] {
      held.Notify();
      go_on.WaitOrAbort();
    });
    io_thread_->Post(hold);
    held.WaitOrAbort();
    function();
    go_on.Notify();
    LetTurn(*io_thread_, 1);
  }
  // How many of the first's requests come before the second's only one.
  size_t Before(OneMachine& first, OneMachine& second, uint32_t bytes, int count) {
    std::vector<OneMachine*> order;
    for (OneMachine* each : {&first, &second}) {
      each->disk().OnSubmit([&order, each] { order.push_back(each); });
    }
    WhileTheThreadIsHeld([&] {
      first.Add(bytes, count);
      first.rig().Publish();
      second.Add(512);
      second.rig().Publish();
    });
    second.Drain(1);
    first.Drain(static_cast<size_t>(count));
    const auto at = std::ranges::find(order, &second);
    for (OneMachine* each : {&first, &second}) each->disk().OnSubmit({});
    EXPECT_EQ(order.size(), static_cast<size_t>(count) + 1);
    return static_cast<size_t>(at - order.begin());
  }

  std::unique_ptr<IoThread> io_thread_;
};

TEST_P(SharedThreadTest, ATurnTakesThirtyTwoRequestsOfOneQueue) {
  OneMachine busy(*io_thread_, 4096);
  OneMachine other(*io_thread_, 4096);
  EXPECT_EQ(Before(busy, other, 4096, kDepth), IoThread::kTurnRequests);
}

// And what is more in the last of them.
TEST_P(SharedThreadTest, ATurnTakesAMebibyteOfOneQueue) {
  OneMachine busy(*io_thread_, 256 << 10);
  OneMachine other(*io_thread_, 4096);
  EXPECT_EQ(Before(busy, other, 256 << 10, 64), IoThread::kTurnBytes / (256 << 10));
  EXPECT_EQ(Before(busy, other, 96 << 10, 64), IoThread::kTurnBytes / (96 << 10) + 1);
}

TEST_P(SharedThreadTest, AThreadOfOneMachineTakesAllThereIs) {
  io_thread_ = *IoThread::Start("own", GetParam());
  OneMachine busy(*io_thread_, 4096);
  OneMachine other(*io_thread_, 4096);
  EXPECT_EQ(Before(busy, other, 4096, kDepth), size_t{kDepth});
}

// A neighbour that always has 128 requests, and one who asks now and then, also after a silence so
// long that nobody looks at its ring any more.
TEST_P(SharedThreadTest, ANeighbourIsWaitedForATurnAtMost) {
#ifdef RINGSIDE_TSAN
  constexpr int kRounds = 100;
#else
  constexpr int kRounds = 1'000;
#endif
  OneMachine busy(*io_thread_, 4096);
  OneMachine other(*io_thread_, 4096);
  uint64_t at_submit = 0;
  other.disk().OnSubmit([&] { at_submit = busy.disk().submitted(); });
  std::atomic<bool> stop = false;
  std::thread refills([&] {
    busy.Add(4096, kDepth);
    while (!stop) busy.Refill(4096);
  });
  std::vector<uint64_t> waited;
  uint64_t longest = 0;
  // On a busy machine there may be nobody to wait for, for long.
  for (int round = 0; round < kRounds || (longest == 0 && round < 10 * kRounds); ++round) {
    if (round % 100 == 0) {
      const uint64_t since = busy.disk().submitted();
      ASSERT_TRUE(SpinUntil([&] { return busy.disk().submitted() > since + 50'000; }));
    }
    other.Add(512);
    other.rig().Publish();
    const uint64_t published = busy.disk().submitted();
    other.Drain(1);
    waited.push_back(at_submit > published ? at_submit - published : 0);
    longest = std::max(longest, waited.back());
  }
  stop = true;
  refills.join();
  std::ranges::sort(waited);
  RecordProperty("median", static_cast<int>(waited[waited.size() / 2]));
  RecordProperty("max", static_cast<int>(longest));
  EXPECT_GT(longest, 0u) << "there was nobody to wait for";
  EXPECT_LE(longest, IoThread::kTurnRequests);
}

RINGSIDE_WITH_BOTH_WAITERS(SharedThreadTest);

}  // namespace
}  // namespace ringside::testing
