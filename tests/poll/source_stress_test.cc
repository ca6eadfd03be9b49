// Lost wake-ups. A thread fills a ring as a virtio driver does, and signals only when the device
// wants it to; the device is a source that goes to sleep whenever it finds nothing. One entry that
// neither side noticed, and the round never ends.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"

namespace ringside {
namespace {

using testing::Aim;
using testing::Delay;
using testing::OnTwoProcessors;
using testing::RaceLimit;
using testing::RunOn;
using testing::SlowStores;
using testing::SpinUntil;

#ifdef RINGSIDE_TSAN
constexpr uint32_t kDefaultRounds = 10'000;
#else
constexpr uint32_t kDefaultRounds = 100'000;
#endif

// RINGSIDE_STRESS_ROUNDS makes a long run of it.
uint32_t Rounds() {
  const char* rounds = std::getenv("RINGSIDE_STRESS_ROUNDS");
  return rounds != nullptr ? static_cast<uint32_t>(std::stoul(rounds)) : kDefaultRounds;
}
const uint32_t kRounds = Rounds();

// Both sides of a ring. The entries are plain memory: that they may be read is the index's promise.
class Ring {
 public:
  static constexpr uint32_t kSize = 256;

  // The driver's. As virtio_mb and the check after it: VIRTIO 1.2 section 2.7.13.4.1.
  void Put(uint64_t value) {
    entries_[filled_ % kSize] = value;
    available_.store(++filled_, std::memory_order_release);
    // Our index before our look at the wish: pairs with the fence in Wait::GoToSleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (wants_kicks_.load(std::memory_order_relaxed) == 0) return;
    ++kicks_;
    wake_.Signal();
  }
  // As the kernel's AIO does: it signals without a look, here `late` steps of Delay after the
  // entry.
  void PutLoudly(uint64_t value, int late) {
    entries_[filled_ % kSize] = value;
    available_.store(++filled_, std::memory_order_release);
    Delay(late);
    wake_.Signal();
  }
  bool full() const { return filled_ - used_.load(std::memory_order_acquire) == kSize; }
  bool AllUsed() const { return used_.load(std::memory_order_acquire) == filled_; }
  uint32_t kicks() const { return kicks_; }
  const EventFd& wake() const { return wake_; }

  // The device's.
  bool HasEntry() const { return available_.load(std::memory_order_acquire) != taken_; }
  uint64_t Take() { return entries_[taken_++ % kSize]; }
  void PublishUsed() { used_.store(taken_, std::memory_order_release); }
  void WantKicks(bool wanted) { wants_kicks_.store(wanted, std::memory_order_relaxed); }

 private:
  const EventFd wake_ = *EventFd::Create();
  std::vector<uint64_t> entries_ = std::vector<uint64_t>(kSize);
  alignas(64) std::atomic<uint32_t> available_{0};
  alignas(64) std::atomic<uint32_t> used_{0};
  alignas(64) std::atomic<int> wants_kicks_{1};
  alignas(64) uint32_t filled_ = 0;  // the driver's
  uint32_t kicks_ = 0;
  alignas(64) uint32_t taken_ = 0;  // the device's
};

class RingSource final : public Source {
 public:
  explicit RingSource(Ring& ring, uint32_t budget = Ring::kSize)
      : Source(ring.wake().fd()), ring_(ring), budget_(budget) {}

  bool HasWork() override {
    looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return ring_.HasEntry();
  }
  void Run() override {
    looks_.store(0, std::memory_order_relaxed);
    for (uint32_t left = budget_; left > 0 && ring_.HasEntry(); --left) {
      const uint64_t value = ring_.Take();
      in_order_ &= value == ++last_;
    }
    ring_.PublishUsed();
  }
  void EnableNotify() override {
    slow_.Queue();  // so that the wish, too, is late
    ring_.WantKicks(true);
  }
  void DisableNotify() override { ring_.WantKicks(false); }

  SlowStores& slow() { return slow_; }
  // Since the last entry. Any thread.
  uint32_t looks() const { return looks_.load(std::memory_order_relaxed); }
  // Once the driver has seen that all is used.
  bool in_order() const { return in_order_; }
  uint64_t last() const { return last_; }

 private:
  Ring& ring_;
  const uint32_t budget_;
  alignas(64) std::atomic<uint32_t> looks_{0};
  SlowStores slow_;
  bool in_order_ = true;
  uint64_t last_ = 0;
};

// With a short look before each sleep, the end of the look is in the race too, and most rounds are
// found without a sleep.
class SourceStress : public ::testing::TestWithParam<std::tuple<IoThread::Waiter, PollKind>> {
 protected:
  void SetUp() override {
    const auto [waiter, kind] = GetParam();
    auto io_thread = IoThread::Start("test", waiter, {.poll = {.kind = kind, .max_ns = 1'500}});
    if (absl::IsFailedPrecondition(io_thread.status())) {
      GTEST_SKIP() << io_thread.status().message();
    }
    ASSERT_TRUE(io_thread.ok()) << io_thread.status();
    io_thread_ = *std::move(io_thread);
  }
  std::unique_ptr<IoThread> io_thread_;
};
std::string SettingName(
    const ::testing::TestParamInfo<std::tuple<IoThread::Waiter, PollKind>>& setting) {
  const auto [waiter, kind] = setting.param;
  return testing::WaiterName(waiter) + (kind == PollKind::kFixed ? "Spinning" : "");
}
INSTANTIATE_TEST_SUITE_P(With, SourceStress,
                         ::testing::Combine(::testing::Values(IoThread::Waiter::kEpoll,
                                                              IoThread::Waiter::kUring),
                                            ::testing::Values(PollKind::kNever, PollKind::kFixed)),
                         SettingName);
INSTANTIATE_TEST_SUITE_P(OfCommands, SourceStress,
                         ::testing::Combine(::testing::Values(IoThread::Waiter::kUringWithCommands),
                                            ::testing::Values(PollKind::kNever)),
                         SettingName);

// Attached for a scope, so that a failed assertion leaves nothing behind.
class Attached {
 public:
  Attached(IoThread& io_thread, Source& source, Phase phase)
      : io_thread_(io_thread), source_(source) {
    RunOn(io_thread_, [&] { EXPECT_TRUE(io_thread_.Attach(source_, phase).ok()); });
  }
  ~Attached() {
    RunOn(io_thread_, [&] { io_thread_.Detach(source_); });
  }

 private:
  IoThread& io_thread_;
  Source& source_;
};

// Sweeps the moment of the next entry over the device's way from the last one into its sleep.
TEST_P(SourceStress, PingPongAtDepthOneNeverStops) {
  const RaceLimit limit;
  const OnTwoProcessors apart(*io_thread_);
  Ring ring;
  RingSource source(ring);
  const Attached attached(*io_thread_, source, Phase::kTake);
  uint32_t rounds = 0;
  while (rounds < kRounds && !limit.IsOver()) {
    source.slow().TakeLines();
    ring.Put(++rounds);
    ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); }))
        << "entry " << rounds << " was left in the ring";
    Delay(static_cast<int>(rounds % 2000));
  }
  EXPECT_TRUE(source.in_order());
  EXPECT_EQ(source.last(), rounds);
  EXPECT_GT(ring.kicks(), 0u);
}

TEST_P(SourceStress, BurstsOfEveryLengthAreFinished) {
  const OnTwoProcessors apart(*io_thread_);
  Ring ring;
  RingSource source(ring, 16);
  const Attached attached(*io_thread_, source, Phase::kTake);
  uint64_t put = 0;
  for (uint32_t burst = 0; put < kRounds; ++burst) {
    source.slow().TakeLines();
    for (uint32_t i = 0; i <= burst % 64; ++i) {
      ring.Put(++put);
      Delay(static_cast<int>(burst % 17));
    }
    ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); }))
        << "burst " << burst << " of " << burst % 64 + 1 << " was not finished";
    Delay(static_cast<int>(burst % 2000));
  }
  EXPECT_TRUE(source.in_order());
  EXPECT_EQ(source.last(), put);
}

TEST_P(SourceStress, AStreamThatStopsOnlyWhenTheRingIsFullIsFinished) {
  Ring ring;
  RingSource source(ring);
  const Attached attached(*io_thread_, source, Phase::kTake);
  for (uint64_t i = 1; i <= kRounds; ++i) {
    ASSERT_TRUE(SpinUntil([&] { return !ring.full(); })) << "at entry " << i;
    ring.Put(i);
  }
  ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); }));
  EXPECT_TRUE(source.in_order());
  EXPECT_EQ(source.last(), kRounds);
}

// Of a ring whose other side always signals, some time after the entry.
class LoudSource final : public Source {
 public:
  LoudSource(Ring& ring, IoThread& io_thread)
      : Source(ring.wake().fd(), Watching::kWhileWanted), ring_(ring), io_thread_(io_thread) {}
  bool HasWork() override { return ring_.HasEntry(); }
  void Run() override {
    while (ring_.HasEntry()) in_order_ &= ring_.Take() == ++last_;
    ring_.PublishUsed();
  }
  void EnableNotify() override { io_thread_.Want(*this, true); }
  void DisableNotify() override { io_thread_.Want(*this, false); }
  bool in_order() const { return in_order_; }

 private:
  Ring& ring_;
  IoThread& io_thread_;
  bool in_order_ = true;
  uint64_t last_ = 0;
};

// The thread listens only while it sleeps. Sweeps the signal, which comes after its entry was seen
// or not, over the thread's way into its sleep.
TEST_P(SourceStress, SignalsThatNobodyAskedForWakeWhoSleeps) {
  const OnTwoProcessors apart(*io_thread_);
  Ring ring;
  LoudSource source(ring, *io_thread_);
  const Attached attached(*io_thread_, source, Phase::kComplete);
  const RaceLimit limit;
  uint32_t round = 0;
  while (round < kRounds / 4 && !limit.IsOver()) {
    ++round;
    ring.PutLoudly(round, static_cast<int>(round % 3000));
    ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); }))
        << "entry " << round << " was left in the ring";
    Delay(static_cast<int>(round % 1900));
  }
  EXPECT_TRUE(source.in_order());
}

// Two drivers with rings of different phases, and two that post tasks, each waiting for its last
// one: they wake the thread for each other, and must not take each other's wake-ups away.
TEST_P(SourceStress, RingsAndTasksDoNotLoseEachOthersWakeUps) {
  const uint32_t kEach = kRounds / 6;
  Ring rings[2];
  RingSource first(rings[0]), second(rings[1], 1);
  const Attached first_attached(*io_thread_, first, Phase::kComplete);
  const Attached second_attached(*io_thread_, second, Phase::kTake);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (Ring& ring : rings) {
    threads.emplace_back([&] {
      for (uint32_t i = 1; i <= kEach; ++i) {
        ring.Put(i);
        if (i % 3 == 0) continue;
        if (!SpinUntil([&] { return ring.AllUsed(); })) {
          failures.fetch_add(1);
          return;
        }
        Delay(static_cast<int>(i % 1500));
      }
      if (!SpinUntil([&] { return ring.AllUsed(); })) failures.fetch_add(1);
    });
  }
  for (int poster = 0; poster < 2; ++poster) {
    threads.emplace_back([&, poster] {
      std::atomic<uint32_t> runs{0};
      TaskOf task([&] { runs.fetch_add(1, std::memory_order_release); });
      for (uint32_t i = 1; i <= kEach; ++i) {
        io_thread_->Post(task);
        if (!SpinUntil([&] { return runs.load(std::memory_order_acquire) == i; })) {
          std::abort();  // the task is on this stack
        }
        Delay(static_cast<int>(i % 1700 * (1 + poster)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_TRUE(first.in_order());
  EXPECT_TRUE(second.in_order());
  EXPECT_EQ(first.last() + second.last(), 2 * kEach);
}

// Keeps its thread from waiting.
class BusySource final : public Source {
 public:
  explicit BusySource(const EventFd& wake) : Source(wake.fd()) {}
  bool HasWork() override { return true; }
  void Run() override {}
  void EnableNotify() override {}
  void DisableNotify() override {}
};

// A thread that polls for ever looks no more at one that has long been silent, but hears it.
TEST(ParkStress, WhoSignalsWithoutBeingAskedIsHeardWhenItIsParked) {
  auto started = IoThread::Start("test", IoThread::Waiter::kUring);
  if (!started.ok()) GTEST_SKIP() << started.status().message();
  const std::unique_ptr<IoThread> io_thread = *std::move(started);
  const EventFd never = *EventFd::Create();
  BusySource busy(never);
  const Attached busy_attached(*io_thread, busy, Phase::kComplete);
  Ring ring;
  LoudSource source(ring, *io_thread);
  const Attached attached(*io_thread, source, Phase::kComplete);
  for (uint32_t round = 1; round <= 100; ++round) {
    const auto parked = [&] { return io_thread->stats().parked.Get() >= round; };
    ASSERT_TRUE(SpinUntil(parked));
    ring.PutLoudly(round, 0);
    ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); })) << "entry " << round << " was lost";
  }
}

// Sweeps the moment of the next entry over the one in which a source that has long been silent is
// looked at for the last time: that look finds it, or the driver sees that a kick is wanted.
TEST(ParkStress, AnEntryThatMeetsTheLastLookIsNotLost) {
#ifdef RINGSIDE_TSAN
  constexpr uint32_t kParks = 500;
#else
  constexpr uint32_t kParks = 5'000;
#endif
  constexpr uint32_t kAlmostParked = 1000;  // looks
  const std::unique_ptr<IoThread> io_thread = *IoThread::Start("test");
  const OnTwoProcessors apart(*io_thread);
  const EventFd never = *EventFd::Create();
  BusySource busy(never);
  const Attached busy_attached(*io_thread, busy, Phase::kComplete);
  Ring ring;
  RingSource source(ring);
  const Attached attached(*io_thread, source, Phase::kTake);
  Aim aim;
  const RaceLimit limit;
  for (uint32_t round = 1; round <= kParks && !limit.IsOver(); ++round) {
    source.slow().TakeLines();
    // A turn of a slow machine is too long for the aim alone.
    ASSERT_TRUE(SpinUntil([&] { return source.looks() >= kAlmostParked + round % 24; }));
    aim.Wait();
    const uint32_t kicks = ring.kicks();
    ring.Put(round);
    aim.Learn(ring.kicks() != kicks);
    ASSERT_TRUE(SpinUntil([&] { return ring.AllUsed(); })) << "entry " << round << " was lost";
  }
  EXPECT_GT(ring.kicks(), 0u);
  EXPECT_GT(io_thread->stats().parked.Get(), 0u);
}

}  // namespace
}  // namespace ringside
