#include <atomic>
#include <deque>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>
#include <vector>

#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::Delay;
using testing::kRaces;
using testing::LetTurn;
using testing::OnTwoProcessors;
using testing::RunOn;
using testing::SleepObserver;
using testing::SlowStores;
using testing::SpinUntil;
using testing::WaiterTest;

// Keeps the I/O thread inside a task, so that what is posted meanwhile becomes one batch.
class Gate {
 public:
  explicit Gate(IoThread& io_thread) {
    io_thread.Post(task_);
    entered_.WaitOrAbort();
  }
  void Open() { open_.Notify(); }

 private:
  BoundedEvent entered_;
  BoundedEvent open_;
  TaskOf<std::function<void()>> task_{[this] {
    entered_.Notify();
    open_.WaitOrAbort();
  }};
};

// Stays in the mailbox until stopped, so that the I/O thread never sleeps.
class KeepAwake {
 public:
  explicit KeepAwake(IoThread& io_thread) : io_thread_(io_thread) { io_thread.Post(task_); }
  ~KeepAwake() {
    stop_.store(true, std::memory_order_relaxed);
    done_.WaitOrAbort();
  }

 private:
  IoThread& io_thread_;
  std::atomic<bool> stop_{false};
  BoundedEvent done_;
  TaskOf<std::function<void()>> task_{
      [this] { stop_.load(std::memory_order_relaxed) ? done_.Notify() : io_thread_.Post(task_); }};
};

class IoThreadPost : public WaiterTest {};
class IoThreadWakeUp : public WaiterTest {};
class IoThreadEnd : public WaiterTest {};
RINGSIDE_WITH_BOTH_WAITERS(IoThreadPost);
RINGSIDE_WITH_BOTH_WAITERS(IoThreadWakeUp);
RINGSIDE_WITH_BOTH_WAITERS(IoThreadEnd);

TEST_P(IoThreadPost, TasksRunOnTheThreadOfThatName) {
  const auto io_thread = StartIoThread("io-of-test");
  char name[16] = "";
  std::thread::id first, second;
  RunOn(*io_thread, [&] {
    first = std::this_thread::get_id();
    pthread_getname_np(pthread_self(), name, sizeof name);
  });
  RunOn(*io_thread, [&] { second = std::this_thread::get_id(); });
  EXPECT_STREQ(name, "io-of-test");
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(first, second);
}

TEST_P(IoThreadPost, NothingIsLostAndEachPostersOrderIsKept) {
  constexpr int kPosters = 4;
  constexpr int kTasks = 20'000;
  // All of it plain memory: that Run may touch it is Post's promise, which TSan checks.
  struct Numbered final : Task {
    void Run() override { ran->push_back({poster, number}); }
    std::vector<std::pair<int, int>>* ran = nullptr;
    int poster = -1;
    int number = -1;
  };
  std::vector<std::pair<int, int>> ran;
  std::vector<std::vector<Numbered>> tasks(kPosters);
  for (auto& of_poster : tasks) of_poster = std::vector<Numbered>(kTasks);

  auto io_thread = StartIoThread();
  std::vector<std::thread> posters;
  for (int poster = 0; poster < kPosters; ++poster) {
    posters.emplace_back([&, poster] {
      for (int number = 0; number < kTasks; ++number) {
        Numbered& task = tasks[poster][number];
        task.ran = &ran;
        task.poster = poster;
        task.number = number;
        io_thread->Post(task);
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  io_thread.reset();

  ASSERT_EQ(ran.size(), size_t{kPosters * kTasks});
  std::vector<int> next(kPosters, 0);
  for (const auto& [poster, number] : ran) ASSERT_EQ(number, next[poster]++) << "poster " << poster;
}

TEST_P(IoThreadPost, ABurstOfPostsOfOneTaskCostsOneRun) {
  const auto io_thread = StartIoThread();
  int runs = 0;
  TaskOf task([&] { ++runs; });
  Gate gate(*io_thread);
  for (int i = 0; i < 1000; ++i) io_thread->Post(task);
  gate.Open();
  LetTurn(*io_thread);
  EXPECT_EQ(runs, 1);
}

TEST_P(IoThreadPost, AfterItsRunATaskCanBePostedAgain) {
  const auto io_thread = StartIoThread();
  int runs = 0;
  TaskOf task([&] { ++runs; });
  for (int i = 1; i <= 100; ++i) {
    io_thread->Post(task);
    RunOn(*io_thread, [] {});
    ASSERT_EQ(runs, i);
  }
}

TEST_P(IoThreadPost, FromItsOwnRunATaskRunsAgainAndOthersInBetween) {
  auto io_thread = StartIoThread();
  BoundedEvent done;
  std::vector<char> order;
  std::optional<TaskOf<std::function<void()>>> again, other;
  again.emplace([&] {
    order.push_back('a');
    if (order.size() < 6) {
      io_thread->Post(*other);
      io_thread->Post(*again);
    } else {
      done.Notify();
    }
  });
  other.emplace([&] { order.push_back('o'); });
  io_thread->Post(*again);
  done.WaitOrAbort();
  EXPECT_EQ(std::string(order.begin(), order.end()), "aoaoaoa");
}

// What a second poster wrote must be visible although its Post changed nothing. Nothing else orders
// the two threads here, so TSan objects to the plain `written` if Post and the run do not.
TEST_P(IoThreadPost, ARunSeesWhatWasWrittenBeforeAPostThatFoundTheTaskQueued) {
  for (int i = 0; i < 200; ++i) {
    const auto io_thread = StartIoThread();
    int written = 0;
    int seen = -1;
    TaskOf task([&] { seen = written; });
    std::atomic<bool> entered{false}, open{false};
    TaskOf hold([&] {
      entered.store(true, std::memory_order_relaxed);
      SpinUntil([&] { return open.load(std::memory_order_relaxed); });
    });
    io_thread->Post(hold);
    ASSERT_TRUE(SpinUntil([&] { return entered.load(std::memory_order_relaxed); }));
    io_thread->Post(task);
    std::thread second([&] {
      written = 42;
      io_thread->Post(task);
      open.store(true, std::memory_order_relaxed);
    });
    second.join();
    RunOn(*io_thread, [] {});
    ASSERT_EQ(seen, 42);
  }
}

// The second Post of each round races with the run that the first one caused: it either finds the
// task queued, and that run sees the second value, or it causes another run.
TEST_P(IoThreadPost, RacingWithTheTasksRunIsNeverLost) {
  const auto io_thread = StartIoThread();
  const OnTwoProcessors apart(*io_thread);
  SlowStores slow;
  alignas(64) std::atomic<int> written{0};
  alignas(64) std::atomic<int> seen{0};
  TaskOf before([&] { slow.Queue(); });
  TaskOf look(
      [&] { seen.store(written.load(std::memory_order_relaxed), std::memory_order_relaxed); });
  const KeepAwake awake(*io_thread);
  const testing::RaceLimit limit;
  for (int round = 1; round <= kRaces && !limit.IsOver(); ++round) {
    slow.TakeLines();
    written.store(2 * round - 1, std::memory_order_relaxed);
    io_thread->Post(before);
    io_thread->Post(look);
    Delay(round % 2000);
    written.store(2 * round, std::memory_order_relaxed);
    io_thread->Post(look);
    ASSERT_TRUE(SpinUntil([&] { return seen.load(std::memory_order_relaxed) == 2 * round; }))
        << "the second post of round " << round << " was lost";
  }
}

// Sweeps the moment of the Post over the way of the I/O thread from its task into its sleep.
TEST_P(IoThreadWakeUp, APostWhileTheThreadGoesToSleepWakesIt) {
  const auto io_thread = StartIoThread();
  const OnTwoProcessors apart(*io_thread);
  SlowStores slow;
  std::atomic<int> runs{0};
  TaskOf task([&] {
    runs.fetch_add(1, std::memory_order_relaxed);
    Delay(300);  // until the poster has seen it
    slow.Queue();
  });
  const testing::RaceLimit limit;
  for (int round = 1; round <= kRaces && !limit.IsOver(); ++round) {
    slow.TakeLines();
    io_thread->Post(task);
    ASSERT_TRUE(SpinUntil([&] { return runs.load(std::memory_order_relaxed) == round; }))
        << "slept through the post of round " << round;
    Delay(round % 2000);
  }
  RunOn(*io_thread, [] {});  // the last run is over, and what it uses may go
}

TEST_P(IoThreadWakeUp, PingPongBetweenTwoThreadsNeverStops) {
  constexpr int kRounds = 2 * kRaces;
  const auto left = StartIoThread("left");
  const auto right = StartIoThread("right");
  BoundedEvent done;
  int rounds = 0;  // handed over with each post
  const testing::RaceLimit limit;
  std::optional<TaskOf<std::function<void()>>> ping, pong;
  ping.emplace([&] { right->Post(*pong); });
  pong.emplace([&] { ++rounds < kRounds && !limit.IsOver() ? left->Post(*ping) : done.Notify(); });
  left->Post(*ping);
  ASSERT_TRUE(done.Wait()) << "a post woke nobody";
  EXPECT_GT(rounds, 0);
  RunOn(*left, [] {});  // has returned from its last Post, so its target may go
}

// The number of write() calls of this thread so far, or -1 where the kernel does not tell.
int64_t WriteCalls() {
  std::ifstream counters("/proc/thread-self/io");
  std::string name;
  for (int64_t value = 0; counters >> name >> value;) {
    if (name == "syscw:") return value;
  }
  return -1;
}

TEST_P(IoThreadWakeUp, APostToAThreadThatIsAwakeCostsNoSystemCall) {
  const int64_t before = WriteCalls();
  if (before < 0) GTEST_SKIP() << "this kernel counts no system calls in /proc/thread-self/io";
  const auto io_thread = StartIoThread();
  RunOn(*io_thread, [] {});
  Gate gate(*io_thread);
  std::deque<TaskOf<std::function<void()>>> tasks;
  const int64_t awake = WriteCalls();
  for (int i = 0; i < 100; ++i) io_thread->Post(tasks.emplace_back([] {}));
  EXPECT_EQ(WriteCalls(), awake);
  gate.Open();
  LetTurn(*io_thread);
  const SleepObserver observer(*io_thread);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  RunOn(*io_thread, [] {});
  EXPECT_GT(WriteCalls(), before);  // but it does count them
}

// It is to cost nothing when idle: neither the wake-up nor a watch may keep it going.
TEST_P(IoThreadWakeUp, AfterItsWorkTheThreadSleeps) {
  const auto io_thread = StartIoThread();
  const SleepObserver observer(*io_thread);
  for (int i = 0; i < 10; ++i) {
    RunOn(*io_thread, [] {});
    ASSERT_TRUE(observer.WaitUntilItSleeps());
  }
}

TEST_P(IoThreadEnd, RunsWhatWasPostedBefore) {
  for (int i = 0; i < 50; ++i) {
    int runs = 0;
    std::deque<TaskOf<std::function<void()>>> tasks;
    auto io_thread = StartIoThread();
    {
      Gate gate(*io_thread);
      for (int j = 0; j < 100; ++j) io_thread->Post(tasks.emplace_back([&] { ++runs; }));
      std::thread opener([&] { gate.Open(); });
      io_thread.reset();
      opener.join();
    }
    ASSERT_EQ(runs, 100);
  }
}

TEST_P(IoThreadEnd, AThreadThatSleepsOrNeverRanAnythingEnds) {
  for (int i = 0; i < 100; ++i) {
    StartIoThread().reset();
    const auto io_thread = StartIoThread();
    RunOn(*io_thread, [] {});
  }
}

}  // namespace
}  // namespace ringside
