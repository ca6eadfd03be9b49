// The NVMe driver on controllers that answer, but late each time, or go again each time: no step
// may prolong another, so that what is in flight is answered in the end, soon.
#include <cerrno>

#include "tests/support/nvme_disk.h"

namespace ringside {
namespace {

using testing::NvmeModelFault;
using testing::NvmeTest;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;
using Kind = NvmeModelFault::Kind;

constexpr uint32_t kAlways = 1'000'000;

class NvmeRecoveryTest : public NvmeTest {
 protected:
  NvmeRecoveryTest() : NvmeTest(absl::Milliseconds(200)) {
    for (uint32_t i = 0; i < kWrites; ++i) {
      writes_.push_back(std::make_unique<TestRequest>(BlockOp::kWrite, i * 4096,
                                                      Pieces{{memory_.At(i * 4096, 4096)}}));
    }
  }
  int Write() { return disk_->Run(*writes_[0]); }
  // All at once; how many failed.
  int WriteAll() {
    std::vector<TestRequest*> list;
    for (const auto& write : writes_) list.push_back(write.get());
    disk_->Run(list);
    return static_cast<int>(
        std::ranges::count_if(writes_, [](const auto& write) { return write->result != 0; }));
  }
  // Answers commands of that kind just in time, from now on.
  void Delay(nvme::AdminOp op) {
    model_->Add({.kind = Kind::kDelay,
                 .admin = true,
                 .opcode = static_cast<uint8_t>(op),
                 .times = kAlways,
                 .delay_ns = absl::ToInt64Nanoseconds(timeout_) * 9 / 10});
  }

  static constexpr int kWrites = 40;
  std::vector<std::unique_ptr<TestRequest>> writes_;
};

// Each would do no harm; in a row they would take forty times as long.
TEST_F(NvmeRecoveryTest, SlowAbortsOfManyCommandsEndInAReset) {
  Start();
  EXPECT_EQ(Write(), 0);
  model_->Add({.kind = Kind::kHang, .times = kAlways});
  Delay(nvme::AdminOp::kAbort);
  const absl::Time start = absl::Now();
  EXPECT_EQ(WriteAll(), kWrites);
  // Three sends of each: the first has two time-outs, the others one, and there are the resets.
  EXPECT_LT(absl::Now() - start, 12 * timeout_);
  EXPECT_GT(statistics().resets, 0);
  EXPECT_LE(statistics().resets, 4);
  model_->ClearFaults();
  EXPECT_EQ(WriteAll(), 0);
}

// Another of its commands is not what a command's time-out waits for.
TEST_F(NvmeRecoveryTest, ASlowAnswerToSomethingElseProlongsNoTimeout) {
  Start();
  EXPECT_EQ(Write(), 0);
  model_->Add({.kind = Kind::kHang});
  Delay(nvme::AdminOp::kGetLogPage);
  for (int i = 0; i < 20; ++i) model_->SendAsyncEvent(0x00020001);
  const absl::Time start = absl::Now();
  EXPECT_EQ(Write(), 0);
  EXPECT_LT(absl::Now() - start, 7 * timeout_);
}

// Nor is the making of other queues, of which each takes its time.
TEST_F(NvmeRecoveryTest, SlowQueuesProlongNoTimeout) {
  Start();
  EXPECT_EQ(Write(), 0);
  const MemoryRegion region = memory_.region();
  std::vector<std::unique_ptr<NvmeDevice>> devices;
  for (int i = 0; i < 8; ++i) {
    devices.push_back(*NvmeDevice::Create(controller_, {}));
    ASSERT_TRUE(devices.back()->MapMemory({&region, 1}).ok());
  }
  model_->Add({.kind = Kind::kHang});
  Delay(nvme::AdminOp::kCreateCq);
  std::vector<std::unique_ptr<TestDisk>> disks;
  for (auto& device : devices) {
    disks.push_back(std::make_unique<TestDisk>(std::move(device), IoThread::Waiter::kEpoll));
  }
  const absl::Time start = absl::Now();
  EXPECT_EQ(Write(), 0);
  EXPECT_LT(absl::Now() - start, 5 * timeout_);
  model_->ClearFaults();
}

}  // namespace
}  // namespace ringside
