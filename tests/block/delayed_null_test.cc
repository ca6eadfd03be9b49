// A null disk with a service time, on I/O threads that sleep and on those that look.
#include <gtest/gtest.h>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "block/null_device.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/block/chained_request.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/poll/silent_ring.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::RunOn;
using testing::TestDisk;
using testing::TestRequest;

constexpr uint64_t kSize = 1 << 20;
constexpr int64_t kMs = 1'000'000;

TEST(DelayedNullTest, RefusesALatencyThatCannotBe) {
  for (const int64_t latency_ns : {int64_t{-1}, NullDevice::kMaxLatencyNs + 1}) {
    EXPECT_THAT(NullDevice::Create({.size = kSize, .latency_ns = latency_ns}).status(),
                IsBadInput(std::to_string(latency_ns) + " ns", "give 0 to 1 s"));
  }
}

using Setting = std::tuple<IoThread::Waiter, PollKind>;

class DelayedNullChannelTest : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (waiter() != IoThread::Waiter::kUring) return;
    if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }
  static IoThread::Waiter waiter() { return std::get<0>(GetParam()); }
  static bool looks() { return std::get<1>(GetParam()) == PollKind::kAlways; }

  // With requests that take so long.
  void Start(int64_t latency_ns) {
    ring_ = nullptr;
    disk_ = std::make_unique<TestDisk>(
        NullDevice::Create({.size = kSize, .latency_ns = latency_ns}), waiter());
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
    if (looks()) ring_ = std::make_unique<testing::SilentRing>(io_thread());
    RunOn(io_thread(), [&] { io_thread().SetPoll({.kind = std::get<1>(GetParam())}); });
    // It tells its sources that it looks when it begins to.
    if (looks()) {
      ASSERT_TRUE(testing::SpinUntil([&] { return stats().spins.Get() > 0; }));
    }
    sleeps_ = stats().sleeps.Get();
  }
  IoThread& io_thread() { return disk_->io_thread(); }
  const IoThreadStats& stats() { return io_thread().stats(); }
  uint64_t sleeps() { return stats().sleeps.Get() - sleeps_; }

  std::unique_ptr<TestDisk> disk_;
  std::unique_ptr<testing::SilentRing> ring_;
  uint64_t sleeps_ = 0;
};
TEST_P(DelayedNullChannelTest, ACancelledChannelWaitsForNothing) {
  Start(NullDevice::kMaxLatencyNs);
  testing::ChainedRequest first(1), second(1);
  RunOn(io_thread(), [&] {
    first.Begin(disk_->channel());
    second.Begin(disk_->channel());
    disk_->channel().Cancel();
    EXPECT_FALSE(first.all_done.HasBeenNotified());
  });
  first.all_done.WaitOrAbort();
  second.all_done.WaitOrAbort();
  // Seen without a clock: what had waited its second would be done well.
  EXPECT_EQ(first.result, -ECANCELED);
  EXPECT_EQ(second.result, -ECANCELED);
}

INSTANTIATE_TEST_SUITE_P(
    With, DelayedNullChannelTest,
    ::testing::Combine(::testing::Values(IoThread::Waiter::kEpoll, IoThread::Waiter::kUring),
                       ::testing::Values(PollKind::kNever, PollKind::kAlways)),
    [](const auto& setting) {
      const bool uring = std::get<0>(setting.param) == IoThread::Waiter::kUring;
      const bool looks = std::get<1>(setting.param) == PollKind::kAlways;
      return std::string(uring ? "Uring" : "Epoll") + (looks ? "Looking" : "Sleeping");
    });

TEST_P(DelayedNullChannelTest, EveryRequestSucceedsAfterItsTime) {
  Start(2 * kMs);
  TestRequest read(BlockOp::kRead, 0, {4096}), write(BlockOp::kWrite, 4096, {512, 512});
  TestRequest flush(BlockOp::kFlush, 0), discard(BlockOp::kDiscard, 0);
  for (TestRequest* request : {&read, &write, &flush, &discard}) {
    const int64_t start_ns = MonotonicNs();
    EXPECT_EQ(disk_->Run(*request), 0);
    EXPECT_GE(MonotonicNs() - start_ns, 2 * kMs);
  }
}

TEST_P(DelayedNullChannelTest, EachOneWakesASleeperAndNoneIsNeededByOneThatLooks) {
  constexpr int kTimes = 300;
  Start(kMs / 5);
  TestRequest read(BlockOp::kRead, 0, {4096});
  for (int i = 0; i < kTimes; ++i) EXPECT_EQ(disk_->Run(read), 0);
  if (looks()) {
    EXPECT_EQ(sleeps(), 0u);
  } else {
    EXPECT_GE(sleeps(), uint64_t{kTimes} / 2) << "all, but for a busy machine";
  }
}

// Each takes its time from its own submission, so many at once take no longer than one.
TEST_P(DelayedNullChannelTest, ManyAreServedAtOnceAndInOrder) {
  constexpr int kCount = 100;  // more than a slab
  constexpr int64_t kLatencyNs = 50 * kMs;
  struct Numbered : BlockRequest {
    std::vector<int>* order = nullptr;
    int number = 0;
    testing::BoundedEvent is_done;
  };
  auto device = NullDevice::Create({.size = kSize, .latency_ns = kLatencyNs});
  ASSERT_TRUE(device.ok()) << device.status();
  Start(kLatencyNs);
  std::unique_ptr<BlockChannel> channel;
  RunOn(io_thread(), [&] { channel = *(*device)->Open(io_thread()); });
  std::vector<int> order, expected;
  std::vector<Numbered> requests(kCount);
  const int64_t start_ns = MonotonicNs();
  for (int i = 0; i < kCount; ++i) {
    expected.push_back(i);
    requests[i].order = &order;
    requests[i].number = i;
    requests[i].result = 1;
    requests[i].done = [](BlockRequest& request) {
      auto& numbered = static_cast<Numbered&>(request);
      numbered.order->push_back(numbered.number);
      numbered.is_done.Notify();
    };
    // A turn each: the timer is set for the oldest and stays so.
    RunOn(io_thread(), [&] { channel->Submit(requests[i]); });
  }
  for (Numbered& request : requests) request.is_done.WaitOrAbort();
  EXPECT_LT(MonotonicNs() - start_ns, kCount * kLatencyNs);
  EXPECT_EQ(order, expected);
  for (const Numbered& request : requests) EXPECT_EQ(request.result, 0);
  RunOn(io_thread(), [&] { channel.reset(); });
}

TEST_P(DelayedNullChannelTest, AllocatesNothing) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  Start(kMs / 10);
  TestRequest read(BlockOp::kRead, 0, {4096}), write(BlockOp::kWrite, 4096, {4096});
  disk_->Run({&read, &write});
  uint64_t before = 0, after = 0;
  RunOn(io_thread(), [&] { before = testing::AllocationsOfThisThread(); });
  for (int i = 0; i < 20; ++i) disk_->Run({&read, &write});
  RunOn(io_thread(), [&] { after = testing::AllocationsOfThisThread(); });
  EXPECT_EQ(after, before);
}

// `done` may submit the next request; it takes its time as well.
TEST_P(DelayedNullChannelTest, TakesARequestFromWithinDone) {
  constexpr int kTimes = 20;
  Start(kMs);
  auto device = NullDevice::Create({.size = kSize, .latency_ns = kMs});
  ASSERT_TRUE(device.ok()) << device.status();
  std::unique_ptr<BlockChannel> channel;
  testing::ChainedRequest chain(kTimes);
  const int64_t start_ns = MonotonicNs();
  RunOn(io_thread(), [&] {
    channel = *(*device)->Open(io_thread());
    chain.Begin(*channel);
  });
  chain.all_done.WaitOrAbort();
  EXPECT_GE(MonotonicNs() - start_ns, kTimes * kMs);
  RunOn(io_thread(), [&] { channel.reset(); });
}

}  // namespace
}  // namespace ringside
