// The NVMe driver on controllers that answer, but late each time, or go again each time: no step
// may prolong another, so that what is in flight is answered in the end, soon.
#include <cerrno>
#include <thread>

#include "tests/support/nvme/nvme_disk.h"

namespace ringside {
namespace {

using testing::NvmeModelFault;
using testing::NvmeModelReady;
using testing::NvmeTest;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;
using Kind = NvmeModelFault::Kind;

constexpr uint32_t kAlways = 1'000'000;

class NvmeRecoveryTest : public NvmeTest {
 protected:
  NvmeRecoveryTest() : NvmeTest(absl::Milliseconds(400)) {
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
  EXPECT_GT(Count("resets"), 0);
  EXPECT_LE(Count("resets"), 4);
  model_->ClearFaults();
  EXPECT_EQ(WriteAll(), 0);
}

// A reset takes many steps, each of which has its time.
TEST_F(NvmeRecoveryTest, AResetHasAnEndWhateverCapSays) {
  settings_.open_limit = absl::Seconds(1);
  Start({.timeout = 20});  // in halves of a second
  EXPECT_EQ(Write(), 0);
  model_->SetReady(NvmeModelReady::kNeverSet);
  model_->SetFatal();
  const absl::Time start = absl::Now();
  EXPECT_EQ(Write(), -EIO);
  EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  EXPECT_TRUE(Logged("waited for long enough"));
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

using NvmeRecoveryBackTest = NvmeRecoveryTest;  // where the model itself can go and come back

// The time that it has to come back does not begin anew each time that it is gone again before all
// queues are made.
TEST_F(NvmeRecoveryBackTest, OneThatGoesEachTimeAQueueIsMadeIsGivenUp) {
  timeout_ = absl::Seconds(1);  // by then a busy machine has plugged it in
  Start({.write_cache = false, .returns = true});
  const auto second = Open(1);
  TestRequest write(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 4096)}});
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(second->Run(write), 0);
  constexpr int kMostReturns = 100;
  int returns = 0;
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    for (; returns < kMostReturns; ++returns) {
      testing::SpinUntil([&] { return model_->is_gone() || is_over; });
      const uint64_t before = model_->counters().resets;  // it is looked for
      testing::SpinUntil([&] { return model_->counters().resets > before || is_over; });
      if (is_over) return;
      model_->Add({.kind = Kind::kGone,
                   .admin = true,
                   .opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateCq),
                   .skip = 1});
      model_->PlugIn();
    }
  });
  model_->Unplug();
  EXPECT_EQ(second->Run(write), -EIO);
  is_over = true;
  other.join();
  EXPECT_GT(returns, 0);
  EXPECT_LT(returns, kMostReturns);
  EXPECT_TRUE(Logged("disks fail"));
}

TEST_F(NvmeRecoveryBackTest, OneThatIsBackAndDoesNotComeUpIsGivenUp) {
  Start({.timeout = 8, .write_cache = false, .returns = true});  // in halves of a second
  EXPECT_EQ(Write(), 0);
  model_->Unplug();
  ASSERT_TRUE(testing::SpinUntil([&] { return Logged("waiting"); }));
  model_->SetReady(NvmeModelReady::kNeverSet);
  model_->PlugIn();
  const absl::Time start = absl::Now();
  EXPECT_EQ(Write(), -EIO);
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
}

}  // namespace
}  // namespace ringside
