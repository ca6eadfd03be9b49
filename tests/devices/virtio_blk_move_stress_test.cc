// Queues of virtio-blk moved and brought to rest thousands of times in the middle of I/O, with
// resets in between: every request is done once, and both sides may sleep whenever they can.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "file/file_device.h"
#include "tests/support/block/failing_filter.h"
#include "tests/support/count_of.h"
#include "tests/support/devices/blk_workload.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kShare = 2048;  // sectors a queue
constexpr uint16_t kQueues = 2;
constexpr size_t kThreads = 3;
#if defined(RINGSIDE_TSAN) || defined(RINGSIDE_ASAN)
constexpr int kDrivers = 30;  // one after the other; some 100 moves of each queue a driver
#else
constexpr int kDrivers = 100;
#endif

struct Setup {
  const char* name;
  IoThread::Waiter waiter;
  Engine engine;
  bool event_idx;
  bool holds = false;    // interrupts that were asked for
  bool fails = false;    // requests, which are kept until the next rest
  bool limited = false;  // to changing rates
};

class MoveStressTest : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    if (GetParam().waiter == IoThread::Waiter::kUring && !UringStatus().ok()) {
      GTEST_SKIP() << UringStatus().message();
    }
    for (size_t i = 0; i < kThreads; ++i) {
      threads_.push_back(
          *IoThread::Start("move", GetParam().waiter, GetParam().holds ? Holding(i) : Polling(i)));
    }
    if (GetParam().fails) failing_->every = 50;
    if (GetParam().limited) group_.Set({.iops_total = {.average = 40'000}});
    disk_ = std::make_unique<FailingDevice>(
        *FileDevice::Create({.path = file_.path(), .aio = GetParam().engine}, Logger()), failing_);
    device_ = std::make_unique<VirtioBlk>(*disk_, *memory_, std::vector{threads_[0].get()},
                                          VirtioBlkConfig{.queues = kQueues,
                                                          .throttle = &throttle_,
                                                          .rerror = ErrorAction::kStop,
                                                          .werror = ErrorAction::kStop});
    MakeRigs();
    for (uint16_t i = 0; i < kQueues; ++i) {
      guests_.push_back(std::make_unique<BlkWorkload>(*rigs_[i], i * kShare, kShare, i));
      if (GetParam().holds) guests_.back()->PlayWithEvents();
    }
  }
  void TearDown() override {
    device_.reset();
    disk_.reset();
  }

  // One that looks for long, one for a little, one that sleeps at once.
  static IoThreadTuning Polling(size_t thread) {
    constexpr std::array kKinds = {PollKind::kFixed, PollKind::kGrowShrink, PollKind::kNever};
    return {.poll = {.kind = kKinds[thread], .max_ns = 20'000}};
  }
  // One that sleeps often, one that looks on while it holds something, one that holds nothing.
  static IoThreadTuning Holding(size_t thread) {
    constexpr std::array kKinds = {PollKind::kFixed, PollKind::kCost, PollKind::kNever};
    return {.poll = {.kind = kKinds[thread], .max_ns = 5'000}, .signalling = Signalling::kCost};
  }

  void MakeRigs() {
    rigs_.clear();
    BlkDriver::Options options = {.queue = {.size = 64, .event_idx = GetParam().event_idx}};
    for (uint16_t i = 0; i < kQueues; ++i) {
      rigs_.push_back(std::make_unique<QueueRig>(*memory_, options));
      options.queue.address = (rigs_.back()->driver.end() + 4095) / 4096 * 4096;
    }
  }
  void Activate() {
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < kQueues; ++i) setups.push_back(rigs_[i]->Setup(i));
    device_->Activate(rigs_[0]->queue().features() | kBlkFlushFeature, setups, events_);
  }
  void Reset() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_->Reset(task);
    done.WaitOrAbort();
  }
  std::vector<std::byte> Content(uint16_t queue) const {
    const std::string text = file_.Content(queue * kShare * 512, kShare * 512);
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  // From one thread to another, as often as is wanted by then, until told to stop. In between it
  // stays, as every move has a look at the ring, which makes good for a lost kick.
  void Move(uint16_t queue, const std::atomic<bool>& stop) {
    std::mt19937 random(queue);
    for (int moves = 0; !stop;) {
      if (moves == wanted_) {
        std::this_thread::yield();
        continue;
      }
      BoundedEvent over;
      absl::Status status;
      device_->MoveQueue(queue, *threads_[random() % kThreads], [&](const absl::Status& result) {
        status = result;
        over.Notify();
      });
      over.WaitOrAbort();
      ASSERT_TRUE(status.ok()) << status;
      ++moves;
      Delay(static_cast<int>(random() % 30'000));
    }
  }

  // Now a disk's own limit, now its group's, now none.
  void Limit(const std::atomic<bool>& stop) {
    std::mt19937 random(kQueues);
    for (uint64_t average = 20'000; !stop; average = random() % 3 * 20'000) {
      throttle_.Set({.iops_write = {.average = average}});
      group_.Set({.iops_total = {.average = random() % 2 * 40'000}});
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // To rest and back, or called back on the way, as often as is wanted by then, and for requests
  // that were kept.
  void Pause(const std::atomic<bool>& stop) {
    std::mt19937 random(kQueues);
    for (int pauses = 0; !stop;) {
      if (pauses >= wanted_ && device_->kept() == 0) {
        std::this_thread::yield();
        continue;
      }
      BoundedEvent rests;
      TaskOf done([&] { rests.Notify(); });
      device_->Pause(done);
      if (random() % 4 != 0) {
        rests.WaitOrAbort();
        const uint64_t before = Taken();
        Delay(static_cast<int>(random() % 30'000));
        EXPECT_EQ(Taken(), before) << "while it rested";
        EXPECT_EQ(device_->in_flight(), 0u);
      }
      device_->Resume();
      EXPECT_TRUE(rests.HasBeenNotified());
      ++pauses;
      Delay(static_cast<int>(random() % 30'000));
    }
  }
  uint64_t Taken() const {
    uint64_t sum = 0;
    for (uint16_t i = 0; i < kQueues; ++i) sum += device_->stats(i).requests();
    return sum;
  }
  uint64_t Held() const {
    uint64_t sum = 0;
    for (uint16_t i = 0; i < kQueues; ++i) sum += device_->stats(i).signals.held.Get();
    return sum;
  }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(16 << 20);
  ThrottleGroup group_{"g"};
  DiskThrottle throttle_{&group_};
  TempFile file_{kQueues * kShare * 512};
  std::vector<std::unique_ptr<IoThread>> threads_;
  const std::shared_ptr<Failing> failing_ = std::make_shared<Failing>();
  std::unique_ptr<BlockDevice> disk_;
  std::vector<std::unique_ptr<QueueRig>> rigs_;
  RecordingVirtioEvents events_;
  std::unique_ptr<VirtioBlk> device_;
  std::vector<std::unique_ptr<BlkWorkload>> guests_;
  std::atomic<int> wanted_{0};  // moves of each queue, and rests
};

TEST_P(MoveStressTest, NothingIsLostAndNothingIsDoneTwice) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> movers;
  for (uint16_t i = 0; i < kQueues; ++i) movers.emplace_back([&, i] { Move(i, stop); });
  movers.emplace_back([&] { Pause(stop); });
  if (GetParam().limited) movers.emplace_back([&] { Limit(stop); });
  std::mt19937 random(1);
  uint64_t before_resets = 0;
  // Whether holding pays is learned in some hundred requests, and by each driver anew: under a
  // sanitizer, beside others, it may take more of them.
  const int drivers = GetParam().holds ? kDrivers / 10 : kDrivers;
  const auto goes_on = [&](int driver) {
    return driver < drivers || (GetParam().holds && driver < 5 * kDrivers && Held() == 0);
  };
  const int most_requests = GetParam().holds ? 3'000 : 300;
  for (int driver = 0; goes_on(driver) && !HasFailure(); ++driver) {
    wanted_ += static_cast<int>(random() % 200);
    Activate();
    std::vector<std::thread> guests;
    for (const auto& guest : guests_) {
      const auto requests = static_cast<int>(random() % most_requests);
      guests.emplace_back([&guest, requests] { guest->Run(requests); });
    }
    for (std::thread& guest : guests) guest.join();
    for (const auto& guest : guests_) {
      const auto count = static_cast<int>(random() % 10);
      guest->Begin(count);
      before_resets += static_cast<uint64_t>(count);
    }
    Reset();
    MakeRigs();
    for (uint16_t i = 0; i < kQueues; ++i) guests_[i]->GoOn(*rigs_[i], Content(i));
  }
  stop = true;
  for (std::thread& mover : movers) mover.join();
  uint64_t requests = 0;
  for (uint16_t i = 0; i < kQueues; ++i) {
    EXPECT_TRUE(Content(i) == guests_[i]->shadow());
    EXPECT_EQ(device_->stats(i).errors.Get(), 0u);
    requests += device_->stats(i).requests();
    EXPECT_EQ(device_->stats(i).throttle.waited.Get() > 0, GetParam().limited);
  }
  EXPECT_EQ(Held() > 0, GetParam().holds);
  EXPECT_EQ(failing_->failed > 0, GetParam().fails);
  // What a queue has counted the disk has done, once, but for what a reset has recalled.
  uint64_t given = 0;
  const std::vector<BlockCounter> counters = disk_->Statistics().counters;
  for (const char* kind : {"reads", "writes", "flushes", "discards", "zeroes"}) {
    given += testing::CountOf(counters, kind);
  }
  EXPECT_LE(given, requests);
  EXPECT_GE(given + before_resets, requests);
  EXPECT_TRUE(events_.reasons().empty());
}

INSTANTIATE_TEST_SUITE_P(
    , MoveStressTest,
    ::testing::Values(
        Setup{"ThreadsFlags", IoThread::Waiter::kEpoll, Engine::kThreads, false},
        Setup{"ThreadsEventIdx", IoThread::Waiter::kEpoll, Engine::kThreads, true},
        Setup{"NativeEventIdx", IoThread::Waiter::kEpoll, Engine::kNative, true},
        Setup{"ThreadsHeld", IoThread::Waiter::kEpoll, Engine::kThreads, true, true},
        Setup{"UringHeld", IoThread::Waiter::kUring, Engine::kIoUring, true, true},
        Setup{"ThreadsFail", IoThread::Waiter::kEpoll, Engine::kThreads, true, false, true},
        Setup{"UringLimited", IoThread::Waiter::kUring, Engine::kIoUring, true, false, false, true},
        Setup{"UringFlags", IoThread::Waiter::kUring, Engine::kIoUring, false},
        Setup{"UringEventIdx", IoThread::Waiter::kUring, Engine::kIoUring, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ringside::testing
