#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/test_source.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::LetTurn;
using testing::RunOn;
using testing::SleepObserver;
using testing::SpinUntil;
using testing::TestHook;
using testing::TestSource;
using testing::WaiterTest;

class IoThreadSource : public WaiterTest {
 protected:
  void SetUp() override {
    WaiterTest::SetUp();
    if (!IsSkipped()) io_thread_ = StartIoThread();
  }
  void Attach(Source& source, Phase phase = Phase::kComplete) {
    RunOn(*io_thread_, [&] { ASSERT_TRUE(io_thread_->Attach(source, phase).ok()); });
  }
  void Detach(Source& source) {
    RunOn(*io_thread_, [&] { io_thread_->Detach(source); });
  }
  // Gives it work as another party does.
  static void Kick(TestSource& source, const EventFd& wake, int work = 1) {
    source.work.fetch_add(work, std::memory_order_release);
    wake.Signal();
  }
  // Whether all its work gets done without anyone posting to the thread.
  static bool Finishes(const TestSource& source) {
    return SpinUntil([&] { return source.work.load(std::memory_order_acquire) <= 0; });
  }

  std::unique_ptr<IoThread> io_thread_;
  EventFd wake_ = *EventFd::Create();
  EventFd other_wake_ = *EventFd::Create();
};
RINGSIDE_WITH_BOTH_WAITERS(IoThreadSource);

TEST_P(IoThreadSource, EveryWriteToItsEventfdIsAWakeUpAndNobodyReadsIt) {
  TestSource source(wake_);
  Attach(source);
  for (int i = 0; i < 1000; ++i) {
    Kick(source, wake_);
    ASSERT_TRUE(Finishes(source)) << "kick " << i;
  }
  Detach(source);
  EXPECT_EQ(source.runs, 1000);
  EXPECT_EQ(wake_.Clear(), 1000u);
}

TEST_P(IoThreadSource, AttachedWithItsEventfdSignalledAlreadyItStillWakesTheThread) {
  for (int i = 0; i < 5; ++i) wake_.Signal();
  TestSource source(wake_);
  Attach(source);
  LetTurn(*io_thread_);
  Kick(source, wake_);
  EXPECT_TRUE(Finishes(source));
  Detach(source);
}

TEST_P(IoThreadSource, WhatItHasWhenItIsAttachedIsDoneWithoutAKick) {
  for (const Phase phase : {Phase::kComplete, Phase::kTake}) {
    TestSource source(wake_);
    source.work = 3;
    Attach(source, phase);
    EXPECT_TRUE(Finishes(source));
    Detach(source);
  }
}

TEST_P(IoThreadSource, WorkLeftOverIsDoneWithoutAKick) {
  TestSource source(wake_);
  Attach(source, Phase::kTake);
  Kick(source, wake_, 1000);
  EXPECT_TRUE(Finishes(source));
  Detach(source);
  EXPECT_EQ(source.runs, 1000);
}

// The order of a turn. Everything gets its work from the last step of the turn before.
TEST_P(IoThreadSource, ATurnCompletesPublishesTakesAndSubmits) {
  std::vector<std::string> order;
  std::unique_ptr<TestSource> complete_a, complete_b, submit_a, submit_b;
  TaskOf task([&] { order.push_back("task"); });
  BoundedEvent done;
  TestHook publish([&] { order.push_back("publish"); });
  TestHook submit([&] {
    order.push_back("submit");
    done.Notify();
  });
  TestHook late([&] { order.push_back("publish late"); });
  complete_a = std::make_unique<TestSource>(wake_, [&] {
    order.push_back("complete a");
    io_thread_->AtHandOver(submit);
    io_thread_->AtPublish(publish);
  });
  EventFd wakes[] = {*EventFd::Create(), *EventFd::Create(), *EventFd::Create()};
  complete_b = std::make_unique<TestSource>(wakes[0], [&] { order.push_back("complete b"); });
  submit_a = std::make_unique<TestSource>(wakes[1], [&] {
    order.push_back("take a");
    io_thread_->AtPublish(late);
  });
  submit_b = std::make_unique<TestSource>(wakes[2], [&] { order.push_back("take b"); });
  Attach(*submit_a, Phase::kTake);
  Attach(*complete_a, Phase::kComplete);
  Attach(*submit_b, Phase::kTake);
  Attach(*complete_b, Phase::kComplete);

  TestHook start([&] {
    for (auto* source : {&complete_a, &complete_b, &submit_a, &submit_b}) (*source)->work = 1;
    io_thread_->Post(task);
  });
  RunOn(*io_thread_, [&] { io_thread_->AtHandOver(start); });
  done.WaitOrAbort();
  LetTurn(*io_thread_);
  for (auto* source : {&complete_a, &complete_b, &submit_a, &submit_b}) Detach(**source);
  EXPECT_EQ(order, (std::vector<std::string>{"complete a", "complete b", "task", "publish",
                                             "take a", "take b", "submit", "publish late"}));
}

TEST_P(IoThreadSource, ASourceRunsOnceATurnSoThatOthersHaveTheirs) {
  std::string order;
  TestSource a(wake_, [&] { order += 'a'; });
  TestSource b(other_wake_, [&] { order += 'b'; });
  Attach(a);
  Attach(b);
  RunOn(*io_thread_, [&] { a.work = b.work = 4; });
  EXPECT_TRUE(Finishes(a));
  EXPECT_TRUE(Finishes(b));
  Detach(a);
  Detach(b);
  EXPECT_EQ(order, "abababab");
}

// Notifications. The thread tells the other party when it stops looking, and takes it back when
// there is something to do anyway.

TEST_P(IoThreadSource, AKickTurnsNotificationsOffAndTheNextSleepTurnsThemOn) {
  const SleepObserver observer(*io_thread_);
  TestSource source(wake_);
  Attach(source);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  RunOn(*io_thread_, [&] {
    EXPECT_EQ(source.Count('E'), 0);  // they are on at first
    EXPECT_EQ(source.Count('D'), 0);
    source.journal.clear();
  });
  Kick(source, wake_, 3);
  ASSERT_TRUE(Finishes(source));
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  Detach(source);

  const std::string& journal = source.journal;
  // A look that finds work, off, then three runs; before the sleep on, and another look.
  const size_t disabled = journal.find('D');
  ASSERT_NE(disabled, std::string::npos) << journal;
  EXPECT_EQ(journal.substr(disabled - 1, 3), "WDR") << journal;
  EXPECT_LT(disabled, journal.find('R')) << journal;
  EXPECT_EQ(source.Count('D'), 1) << journal;
  EXPECT_EQ(source.Count('R'), 3) << journal;
  EXPECT_EQ(source.Count('E'), 1) << journal;
  const size_t enabled = journal.find('E');
  EXPECT_GT(enabled, journal.rfind('R')) << journal;
  EXPECT_EQ(journal.substr(enabled - 1, 3), ".E.") << journal;
}

TEST_P(IoThreadSource, WhatComesWhileNotificationsAreTurnedOnIsFoundWithoutAKick) {
  for (const Phase phase : {Phase::kComplete, Phase::kTake}) {
    int left = 1000;
    BoundedEvent done;
    TestSource source(wake_, [&] {
      if (left == 0) done.Notify();
    });
    source.enabling = [&] {
      if (left == 0) return;
      --left;
      source.work.fetch_add(1, std::memory_order_relaxed);
    };
    source.work = 1;
    Attach(source, phase);
    EXPECT_TRUE(done.Wait());
    Detach(source);
    EXPECT_EQ(source.runs, 1001);
  }
}

// No sleep, no notifications: who is kept awake by others asks nobody for kicks.
TEST_P(IoThreadSource, NotificationsStayOffWhileAnotherSourceKeepsTheThreadAwake) {
  const SleepObserver observer(*io_thread_);
  TestSource quiet(wake_);
  TestSource busy(other_wake_);
  Attach(quiet);
  Attach(busy, Phase::kTake);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  uint64_t sleeps = 0;
  RunOn(*io_thread_, [&] {
    sleeps = io_thread_->stats().sleeps.Get();
    quiet.journal.clear();
    quiet.work = 1;
    busy.work = 1000;
  });
  ASSERT_TRUE(Finishes(busy));
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  Detach(quiet);
  Detach(busy);
  EXPECT_EQ(quiet.Count('D'), 1);
  EXPECT_EQ(quiet.Count('E'), 1);
  EXPECT_GE(quiet.journal.find('E'), 999u);  // a look a turn before
  EXPECT_EQ(busy.Count('E'), 1);
  EXPECT_GT(io_thread_->stats().sleeps.Get(), sleeps);
}

TEST_P(IoThreadSource, AnIdleSourceIsLookedAtAndNothingElse) {
  TestSource idle(wake_);
  TestSource busy(other_wake_);
  Attach(idle);
  Attach(busy);
  for (int i = 0; i < 100; ++i) {
    Kick(busy, other_wake_);
    ASSERT_TRUE(Finishes(busy));
  }
  LetTurn(*io_thread_);
  Detach(idle);
  Detach(busy);
  EXPECT_EQ(busy.runs, 100);
  EXPECT_EQ(idle.journal, std::string(idle.journal.size(), '.'));
  EXPECT_GE(idle.journal.size(), 100u);
}

// A driver may write although nobody asked for it.
TEST_P(IoThreadSource, ManyWritesWhileTheThreadIsAwakeCostAFewTurnsAtMost) {
  const SleepObserver observer(*io_thread_);
  TestSource source(wake_);
  Attach(source);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  uint64_t turns = 0, enters = 0;
  RunOn(*io_thread_, [&] {
    turns = io_thread_->stats().turns.Get();
    if (io_thread_->uring() != nullptr) enters = io_thread_->uring()->enters();
    for (int i = 0; i < 10'000; ++i) wake_.Signal();
  });
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  EXPECT_LE(io_thread_->stats().turns.Get() - turns, 10u);
  RunOn(*io_thread_, [&] {
    if (io_thread_->uring() == nullptr) return;
    EXPECT_LE(io_thread_->uring()->enters() - enters, 20u);
  });
  Kick(source, wake_);
  EXPECT_TRUE(Finishes(source));
  Detach(source);
}

// A sleeping thread is woken by the write itself, so one that still sleeps after it was not woken.
TEST_P(IoThreadSource, DetachedItsEventfdWakesNobody) {
  const SleepObserver observer(*io_thread_);
  TestSource source(wake_);
  for (int i = 0; i < 20; ++i) {
    Attach(source);
    Kick(source, wake_);
    ASSERT_TRUE(Finishes(source));
    Detach(source);
    ASSERT_TRUE(observer.WaitUntilItSleeps());
    // The kernel may still tell of the end of the watch itself.
    RunOn(*io_thread_, [] {});
    ASSERT_TRUE(observer.WaitUntilItSleeps());
    const uint64_t turns = io_thread_->stats().turns.Get();
    wake_.Signal();
    EXPECT_TRUE(observer.Sleeps());
    EXPECT_EQ(io_thread_->stats().turns.Get(), turns);
  }
}

}  // namespace
}  // namespace ringside
