// An I/O thread that looks before it sleeps.
#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "base/affinity.h"
#include "base/fd.h"
#include "poll/io_thread.h"
#include "tests/support/cpus.h"
#include "tests/support/descriptors.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/silent_ring.h"
#include "tests/support/poll/test_source.h"
#include "tests/support/poll/uring_ops.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::LetTurn;
using testing::RunOn;
using testing::SilentRing;
using testing::SleepObserver;
using testing::SpinUntil;
using testing::TestOp;
using testing::TestSource;
using testing::WaiterTest;

constexpr PollConfig kAlways = {.kind = PollKind::kAlways};
constexpr PollConfig kFixed = {.kind = PollKind::kFixed, .max_ns = 200'000};

class SpinTest : public WaiterTest {
 protected:
  void Start(const PollConfig& poll) {
    auto io_thread = IoThread::Start("test", GetParam(), {.poll = poll});
    ASSERT_TRUE(io_thread.ok()) << io_thread.status();
    io_thread_ = *std::move(io_thread);
  }
  void Attach(Source& source) {
    RunOn(*io_thread_, [&] { ASSERT_TRUE(io_thread_->Attach(source, Phase::kTake).ok()); });
  }
  void Detach(Source& source) {
    RunOn(*io_thread_, [&] { io_thread_->Detach(source); });
  }
  const IoThreadStats& stats() const { return io_thread_->stats(); }
  bool WaitForSpins(uint64_t spins) const {
    return SpinUntil([&] { return stats().spins.Get() >= spins; });
  }

  const EventFd wake_ = *EventFd::Create();
  const EventFd other_wake_ = *EventFd::Create();
  std::unique_ptr<IoThread> io_thread_;
};
RINGSIDE_WITH_BOTH_WAITERS(SpinTest);

TEST_P(SpinTest, WithoutAPolicyItSleepsAtOnce) {
  Start({});
  const SleepObserver observer(*io_thread_);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  EXPECT_EQ(stats().spins.Get(), 0u);
  EXPECT_EQ(stats().spin_used_ns.Get() + stats().spin_wasted_ns.Get(), 0u);
}

TEST_P(SpinTest, WorkIsFoundWithoutASignalAndNobodyIsAskedForOne) {
  Start(kAlways);
  TestSource source(wake_);
  Attach(source);
  const uint64_t before = stats().sleeps.Get();  // for want of a source it may have slept
  for (int i = 1; i <= 1000; ++i) {
    source.work.fetch_add(1, std::memory_order_release);  // and no Signal
    ASSERT_TRUE(SpinUntil([&] { return source.work.load(std::memory_order_acquire) == 0; })) << i;
  }
  const uint64_t sleeps = stats().sleeps.Get() - before;
  Detach(source);
  EXPECT_EQ(sleeps, 0u);
  EXPECT_EQ(source.Count('D'), 1);
  EXPECT_EQ(source.Count('E'), 0);
  EXPECT_GT(stats().spin_hits.Get(), 0u);
  EXPECT_EQ(stats().spin_wasted_ns.Get(), 0u);
}

TEST_P(SpinTest, TasksAndDescriptorsAreNoticed) {
  Start(kAlways);
  const SilentRing ring(*io_thread_);
  LetTurn(*io_thread_);
  class Watch final : public FdWatch {
   public:
    explicit Watch(int fd) : FdWatch(fd, EPOLLIN) {}
    void Ready() override { calls.fetch_add(1); }
    std::atomic<int> calls{0};
  };
  Watch watch(wake_.fd());
  RunOn(*io_thread_, [&] { io_thread_->Arm(watch); });
  ASSERT_TRUE(WaitForSpins(1));
  wake_.Signal();
  EXPECT_TRUE(SpinUntil([&] { return watch.calls.load() == 1; }));
  RunOn(*io_thread_, [&] { io_thread_->Disarm(watch); });
}

// Submitted before anyone looks, and its completion seen although nobody enters the kernel to wait.
TEST_P(SpinTest, AnOperationOfTheTurnIsSubmittedAndItsCompletionSeen) {
  if (GetParam() == IoThread::Waiter::kEpoll) return;  // has no ring
  Start(kAlways);
  const SilentRing ring(*io_thread_);
  const uint64_t sleeps = stats().sleeps.Get();
  const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(zero.valid());
  char byte = 1;
  TestOp op;
  int file = -1;
  for (size_t round = 1; round <= 100; ++round) {
    RunOn(*io_thread_, [&] {
      if (file < 0) file = *io_thread_->uring()->RegisterFile(zero.get());
      ASSERT_TRUE(io_thread_->uring()->Push(testing::ReadEntry(file, &byte, 1), op));
    });
    bool done = false;
    ASSERT_TRUE(SpinUntil([&] {
      RunOn(*io_thread_, [&] { done = op.results.size() == round; });
      return done;
    }));
  }
  RunOn(*io_thread_, [&] { io_thread_->uring()->UnregisterFile(file); });
  EXPECT_EQ(stats().sleeps.Get(), sleeps);
}

TEST_P(SpinTest, ABoundedSpinEndsInASleepThatAsksForSignals) {
  Start(kFixed);
  const SleepObserver observer(*io_thread_);
  TestSource source(wake_);
  Attach(source);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(observer.WaitUntilItSleeps());
    source.work.fetch_add(1, std::memory_order_release);
    wake_.Signal();
    ASSERT_TRUE(SpinUntil([&] { return source.work.load(std::memory_order_acquire) == 0; })) << i;
  }
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  Detach(source);
  EXPECT_GE(source.Count('E'), 20);
  EXPECT_LE(std::abs(source.Count('E') - source.Count('D')), 1);
  EXPECT_GE(stats().spin_wasted_ns.Get(), 20u * 200'000u);
}

TEST_P(SpinTest, ThePolicyChangesWhileItRuns) {
  Start({});
  const SilentRing ring(*io_thread_);
  const SleepObserver observer(*io_thread_);
  for (int i = 0; i < 5; ++i) {
    const uint64_t spins = stats().spins.Get();
    RunOn(*io_thread_, [&] { io_thread_->SetPoll(kAlways); });
    EXPECT_TRUE(WaitForSpins(spins + 1));
    EXPECT_FALSE(observer.Sleeps());
    RunOn(*io_thread_, [&] { io_thread_->SetPoll({}); });
    EXPECT_TRUE(observer.WaitUntilItSleeps());
  }
}

TEST_P(SpinTest, WaitsAreTracedOnceTheyAreOver) {
  auto io_thread = IoThread::Start("test", GetParam(), {.poll = kFixed, .trace_waits = true});
  ASSERT_TRUE(io_thread.ok()) << io_thread.status();
  io_thread_ = *std::move(io_thread);
  const SleepObserver observer(*io_thread_);
  TestSource source(wake_);
  Attach(source);
  constexpr auto kSleep = std::chrono::milliseconds(5);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(observer.WaitUntilItSleeps());
    std::this_thread::sleep_for(kSleep);
    source.work.fetch_add(1, std::memory_order_release);
    wake_.Signal();
    ASSERT_TRUE(SpinUntil([&] { return source.work.load(std::memory_order_acquire) == 0; })) << i;
  }
  std::vector<WaitOutcome> waits;
  int64_t wake_ns = 0;
  RunOn(*io_thread_, [&] {
    waits = io_thread_->waits()->InOrder();
    wake_ns = io_thread_->Explain().sleep_cost.LatencyNs(Waiting::kIdle);
  });
  Detach(source);
  // Of the source alone: the io_uring's completion may be that of an eventfd.
  const auto of_source = [](const WaitOutcome& wait) { return (wait.ready & ~uint64_t{1}) != 0; };
  ASSERT_GE(std::ranges::count_if(waits, of_source), 4);
  int64_t last_ns = 0;
  for (const WaitOutcome& wait : waits) {
    EXPECT_GT(wait.start_ns, last_ns);
    last_ns = wait.start_ns;
    if (!of_source(wait)) continue;
    EXPECT_EQ(wait.what, Waiting::kIdle);
    EXPECT_TRUE(wait.slept);
    // What it was thought then to take to wake is no part of the wait.
    EXPECT_GE(2 * (wait.waited_ns + wake_ns), std::chrono::nanoseconds(kSleep).count());
  }
}

TEST_P(SpinTest, AThreadExplainsItsPolicyAndWhatASleepCosts) {
  Start({});
  const auto explain = [&] {
    PollExplanation explanation;
    RunOn(*io_thread_, [&] { explanation = io_thread_->Explain(); });
    return explanation;
  };
  EXPECT_EQ(explain().sleep_cost.cpu_ns, 0) << "nobody needed to know";
  const SilentRing ring(*io_thread_);
  RunOn(*io_thread_, [&] { io_thread_->SetPoll(kFixed); });
  ASSERT_TRUE(WaitForSpins(1));
  const PollExplanation explanation = explain();
  EXPECT_EQ(explanation.of(Waiting::kIdle).plan.spin_ns, kFixed.max_ns);
  EXPECT_GT(explanation.of(Waiting::kIdle).waits_by(WaitReason::kPolicy), 0u);
  EXPECT_GT(explanation.sleep_cost.cpu_ns, 0);
}

// Where another thread waits for the processor, looking would only make it wait for longer.
TEST_P(SpinTest, CostGivesUpLookingWhereAnotherThreadWantsTheCpu) {
  Start({.kind = PollKind::kCost});
  const SilentRing ring(*io_thread_);
  const std::vector<int> cpu = {testing::AllowedCpus().front()};
  RunOn(*io_thread_, [&] { ASSERT_TRUE(PinThisThread(cpu).ok()); });
  std::atomic<bool> stop{false};
  std::thread other([&] {
    ASSERT_TRUE(PinThisThread(cpu).ok());
    while (!stop.load()) {
    }
  });
  EXPECT_TRUE(SpinUntil([&] {
    LetTurn(*io_thread_, 1);  // a short wait, so that it looks
    return stats().preempted.Get() > 0;
  }));
  stop.store(true);
  other.join();
}

TEST_P(SpinTest, NoWaitsAreTracedUnasked) {
  Start(kFixed);
  RunOn(*io_thread_, [&] { EXPECT_EQ(io_thread_->waits(), nullptr); });
}

// Parking: who stays silent while others work is asked to signal and looked at no more.

class ParkTest : public SpinTest {
 protected:
  void SetUp() override {
    SpinTest::SetUp();
    if (IsSkipped()) return;
    Start(kAlways);
    Attach(busy_);
  }
  void TearDown() override {
    if (io_thread_ != nullptr) Detach(busy_);
  }
  // So many turns in which there was something to do.
  void Work(int turns) {
    for (int i = 0; i < turns; ++i) {
      busy_.work.fetch_add(1, std::memory_order_release);
      ASSERT_TRUE(SpinUntil([&] { return busy_.work.load(std::memory_order_acquire) == 0; }));
    }
  }
  bool WorkUntil(uint64_t parked) {
    return SpinUntil([&] {
      Work(10);
      return stats().parked.Get() == parked;
    });
  }

  TestSource busy_{other_wake_};
};
RINGSIDE_WITH_BOTH_WAITERS(ParkTest);

TEST_P(ParkTest, ASilentSourceIsParkedAndASignalBringsItBack) {
  TestSource silent(wake_);
  Attach(silent);
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(WorkUntil(round));
    int64_t looks = 0;
    RunOn(*io_thread_, [&] { looks = static_cast<int64_t>(silent.journal.size()); });
    Work(100);
    RunOn(*io_thread_, [&] {
      EXPECT_EQ(static_cast<int64_t>(silent.journal.size()), looks);
      EXPECT_EQ(silent.journal.substr(silent.journal.size() - 3), ".E.");
    });
    silent.work.fetch_add(1, std::memory_order_release);
    wake_.Signal();
    ASSERT_TRUE(SpinUntil([&] { return silent.work.load(std::memory_order_acquire) == 0; }));
    EXPECT_EQ(stats().unparked.Get(), round);
  }
  Detach(silent);
}

TEST_P(ParkTest, WhatComesWhileItIsParkedIsFoundWithoutASignal) {
  TestSource silent(wake_);
  int late = 3;
  silent.enabling = [&] {
    if (late > 0) silent.work.fetch_add(1, std::memory_order_relaxed);
    --late;
  };
  Attach(silent);
  ASSERT_TRUE(WorkUntil(1));
  Detach(silent);
  EXPECT_EQ(silent.runs, 3);
}

TEST_P(ParkTest, AloneOrWithoutWorkNobodyIsParked) {
  TestSource silent(wake_);
  Attach(silent);
  Work(900);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // many a look, but no turn
  EXPECT_EQ(stats().parked.Get(), 0u);
  Detach(silent);
}

TEST_P(ParkTest, AttachedAgainAParkedSourceIsAsAnyOther) {
  TestSource silent(wake_);
  for (uint64_t round = 1; round <= 3; ++round) {
    Attach(silent);
    ASSERT_TRUE(WorkUntil(round));
    Detach(silent);
    wake_.Signal();  // nobody's
  }
  Attach(silent);
  silent.work.fetch_add(1, std::memory_order_release);
  wake_.Signal();
  ASSERT_TRUE(SpinUntil([&] { return silent.work.load(std::memory_order_acquire) == 0; }));
  Detach(silent);
}

TEST_P(ParkTest, AParkedSourceIsDetachedAndAttachedAnew) {
  TestSource silent(wake_);
  for (uint64_t round = 1; round <= 3; ++round) {
    Attach(silent);
    ASSERT_TRUE(WorkUntil(round));
    Detach(silent);
    wake_.Signal();  // finds nobody
    LetTurn(*io_thread_);
  }
  EXPECT_EQ(silent.runs, 0);
}

}  // namespace
}  // namespace ringside
