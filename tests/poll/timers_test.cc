// Timers by themselves, and on an I/O thread that sleeps, dozes or looks.
#include "poll/timers.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/silent_ring.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::RunOn;
using testing::SleepObserver;
using testing::WaiterTest;

constexpr int64_t kMs = 1'000'000;

class TestTimer final : public Timer {
 public:
  explicit TestTimer(std::function<void(int64_t)> expired) : expired_(std::move(expired)) {}
  void Expired(int64_t now_ns) override { expired_(now_ns); }

 private:
  const std::function<void(int64_t)> expired_;
};

class TimersTest : public ::testing::Test {
 protected:
  TestTimer Numbered(int number) {
    return TestTimer([this, number](int64_t) { order_.push_back(number); });
  }

  Timers timers_;
  std::vector<int> order_;
};

TEST_F(TimersTest, RunInTheOrderOfTheirTimes) {
  TestTimer first = Numbered(1), second = Numbered(2), third = Numbered(3);
  EXPECT_EQ(timers_.first_ns(), Timers::kNever);
  timers_.Arm(third, 30);
  timers_.Arm(first, 10);
  timers_.Arm(second, 10);
  EXPECT_EQ(timers_.first_ns(), 10);
  EXPECT_FALSE(timers_.RunDue(9));
  EXPECT_TRUE(timers_.RunDue(29));
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
  EXPECT_FALSE(first.armed());
  EXPECT_TRUE(third.armed());
  EXPECT_TRUE(timers_.RunDue(30));
  EXPECT_FALSE(timers_.any());
}

TEST_F(TimersTest, OneThatIsArmedAgainMoves) {
  TestTimer first = Numbered(1), second = Numbered(2);
  timers_.Arm(first, 10);
  timers_.Arm(second, 20);
  timers_.Arm(first, 30);
  timers_.RunDue(40);
  EXPECT_EQ(order_, (std::vector<int>{2, 1}));
}

TEST_F(TimersTest, OneThatArmsItselfForThePastWaitsForTheNextTime) {
  int runs = 0;
  TestTimer* self = nullptr;
  TestTimer timer([&](int64_t) {
    ++runs;
    timers_.Arm(*self, 0);
  });
  self = &timer;
  timers_.Arm(timer, 0);
  EXPECT_TRUE(timers_.RunDue(10));
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(timers_.RunDue(10));
  EXPECT_EQ(runs, 2);
  timers_.Disarm(timer);
}

TEST_F(TimersTest, OneThatIsDueMayBeDisarmedOrMovedByAnother) {
  TestTimer gone = Numbered(2), moved = Numbered(3), last = Numbered(4);
  TestTimer first([&](int64_t) {
    timers_.Disarm(gone);
    timers_.Arm(moved, 50);
  });
  timers_.Arm(first, 1);
  timers_.Arm(gone, 2);
  timers_.Arm(moved, 3);
  timers_.Arm(last, 4);
  timers_.RunDue(10);
  EXPECT_EQ(order_, (std::vector<int>{4}));
  EXPECT_EQ(timers_.first_ns(), 50);
  timers_.Disarm(moved);
  timers_.Disarm(moved);
  EXPECT_FALSE(timers_.any());
}

class IoThreadTimers : public WaiterTest {
 protected:
  void Start(PollKind kind) {
    auto io_thread = IoThread::Start("test", GetParam(), {.poll = {.kind = kind}});
    ASSERT_TRUE(io_thread.ok()) << io_thread.status();
    io_thread_ = *std::move(io_thread);
  }
  // Arms the timer anew until it has expired so often, each time for `period_ns` later.
  void RunFor(int times, int64_t period_ns) {
    BoundedEvent over;
    int64_t at_ns = 0;
    TestTimer* self = nullptr;
    TestTimer timer([&](int64_t now_ns) {
      EXPECT_GE(now_ns, at_ns);
      EXPECT_GE(MonotonicNs(), at_ns);
      if (--times == 0) return over.Notify();
      io_thread_->Arm(*self, at_ns = now_ns + period_ns);
    });
    self = &timer;
    RunOn(*io_thread_, [&] { io_thread_->Arm(timer, at_ns = MonotonicNs() + period_ns); });
    over.WaitOrAbort();
  }

  std::unique_ptr<IoThread> io_thread_;
};
RINGSIDE_WITH_BOTH_WAITERS(IoThreadTimers);

// Nobody else wakes it.
TEST_P(IoThreadTimers, WakeASleeperNeverTooEarly) {
  Start(PollKind::kNever);
  const uint64_t sleeps = io_thread_->stats().sleeps.Get();
  RunFor(50, kMs / 5);
  EXPECT_GE(io_thread_->stats().sleeps.Get() - sleeps, 25u) << "all, but for a busy machine";
  EXPECT_LE(io_thread_->stats().turns.Get(), 1000u) << "it slept until then";
}

TEST_P(IoThreadTimers, AreFoundByOneThatLooks) {
  Start(PollKind::kAlways);
  const testing::SilentRing ring(*io_thread_);
  RunFor(50, kMs / 10);
}

TEST_P(IoThreadTimers, EndTheSleepOfAnyPolicy) {
  for (const PollKind kind : {PollKind::kFixed, PollKind::kWeighted, PollKind::kCost}) {
    Start(kind);
    const testing::SilentRing ring(*io_thread_);
    RunFor(20, kMs / 10);
    RunFor(5, 2 * kMs);
  }
}

TEST_P(IoThreadTimers, OneThatIsDisarmedLetsTheThreadSleep) {
  Start(PollKind::kNever);
  TestTimer timer([](int64_t) { ADD_FAILURE(); });
  RunOn(*io_thread_, [&] {
    io_thread_->Arm(timer, MonotonicNs() + 50 * kMs);
    io_thread_->Disarm(timer);
  });
  const SleepObserver observer(*io_thread_);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  const uint64_t turns = io_thread_->stats().turns.Get();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(io_thread_->stats().turns.Get(), turns);
}

}  // namespace
}  // namespace ringside
