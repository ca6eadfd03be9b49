// A driver that makes available, with one kick, as many bytes as there can be: the I/O thread has
// time for everybody else, and a reset or a move waits for no more than the parts under way.
#include <algorithm>

#include "file/file_device.h"
#include "tests/support/count_of.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kFileSize = uint64_t{4} << 30;  // of a sparse file
constexpr uint32_t kSegment = 32 << 20;
constexpr uint64_t kHeader = 1 * kMiB, kStatus = 2 * kMiB, kData = 32 * kMiB;

struct Setup {
  const char* name;
  Engine engine;
  CacheMode cache;
};

class FloodTest : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    const bool ring = GetParam().engine == Engine::kIoUring;
    if (ring) {
      if (const auto status = UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
    }
    for (const char* name : {"a", "b"}) {
      threads_.push_back(
          *IoThread::Start(name, ring ? IoThread::Waiter::kUring : IoThread::Waiter::kEpoll));
    }
    auto disk = FileDevice::Create(
        {.path = file_.path(), .cache = GetParam().cache, .aio = GetParam().engine}, Logger());
    if (!disk.ok()) GTEST_SKIP() << disk.status().message();
    disk_ = *std::move(disk);
    device_ = std::make_unique<VirtioBlk>(*disk_, *memory_, std::vector{threads_[0].get()},
                                          VirtioBlkConfig{});
    const QueueSetup setup = driver_.Setup(0, kick_, line_);
    device_->Activate(driver_.features() | kVirtioVersion1, {&setup, 1}, events_);
    // 256 reads of 4 GiB less a little.
    BlkHeader header = {.type = kBlkIn};
    std::memcpy(memory_->At(kHeader, sizeof header), &header, sizeof header);
    for (int i = 0; i < 256; ++i) {
      FakeDriver::Chain chain = driver_.NewChain();
      chain.AppendReadable(kHeader, sizeof header);
      for (int segment = 0; segment < 126; ++segment) chain.AppendWritable(kData, kSegment);
      chain.AppendWritable(kStatus, 1).Add();
    }
    driver_.Publish();
    kick_.Signal();
    ASSERT_TRUE(SpinUntil([&] { return device_->in_flight() == 256; }));
  }
  void Reset() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_->Reset(task);
    done.WaitOrAbort();
  }
  uint64_t bytes_read() const {
    return testing::CountOf(disk_->Statistics().counters, "bytes_read");
  }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(64 * kMiB);
  const TempFile file_{kFileSize};
  const EventFd kick_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  RecordingVirtioEvents events_;
  FakeDriver driver_{
      *memory_, {.address = 4 * kMiB, .indirect = true, .event_idx = true, .table_entries = 128}};
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::unique_ptr<FileDevice> disk_;
  std::unique_ptr<VirtioBlk> device_;
};

// Not by a clock: all of it is a thousand gigabytes, which no machine reads before the limits of
// these waits.
TEST_P(FloodTest, TheThreadTurnsAndAResetWaitsForPartsOnly) {
  for (int i = 0; i < 20; ++i) LetTurn(*threads_[0], 5);
  EXPECT_EQ(device_->in_flight(), 256u);
  Reset();
  EXPECT_EQ(device_->in_flight(), 0u);
  EXPECT_EQ(bytes_read(), 0u) << "of whole requests";
  EXPECT_EQ(device_->stats(0).errors.Get(), 0u);
}

TEST_P(FloodTest, AMoveWaitsForPartsOnlyAndLosesNothing) {
  for (const size_t to : {1, 0, 1}) {
    BoundedEvent over;
    absl::Status status;
    device_->MoveQueue(0, *threads_[to], [&](const absl::Status& result) {
      status = result;
      over.Notify();
    });
    over.WaitOrAbort();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(device_->in_flight(), 256u);
    EXPECT_EQ(&device_->io_thread(0), threads_[to].get());
  }
  EXPECT_FALSE(driver_.HasUsed());
  Reset();
  EXPECT_EQ(bytes_read(), 0u);
}

INSTANTIATE_TEST_SUITE_P(, FloodTest,
                         ::testing::Values(Setup{"Uring", Engine::kIoUring, CacheMode::kWriteback},
                                           Setup{"UringDirect", Engine::kIoUring, CacheMode::kNone},
                                           Setup{"Native", Engine::kNative, CacheMode::kNone},
                                           Setup{"Threads", Engine::kThreads,
                                                 CacheMode::kWriteback}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ringside::testing
