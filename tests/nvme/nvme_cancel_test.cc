// The end of the machine, while the NVMe driver has requests: nothing begins any more, and what is
// in flight ends within a second, whatever the controller does.
#include <cerrno>
#include <thread>

#include "tests/support/nvme/nvme_disk.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::NvmeModelAbort;
using testing::NvmeModelConfig;
using testing::NvmeModelFault;
using testing::NvmeTest;
using testing::Pattern;
using testing::Pieces;
using testing::TestRequest;
using Kind = NvmeModelFault::Kind;

constexpr absl::Duration kAtOnce = absl::Seconds(4);  // a limit of the product's own takes longer
constexpr uint32_t kAlways = 1'000'000;

class NvmeCancelTest : public NvmeTest {
 protected:
  NvmeCancelTest() {
    for (uint32_t i = 0; i < kWrites; ++i) {
      auto& request = writes_.emplace_back(std::make_unique<TestRequest>(
          BlockOp::kWrite, i * 4096, Pieces{{memory_.At(i * 4096, 4096)}}));
      list_.push_back(&request->Set(Pattern(4096, static_cast<char>(i))));
    }
  }
  // All that the disk can be given, of which no command ends.
  void Hold(NvmeModelConfig config = {}) {
    config.deletes_busy = true;
    Start(config);
    TestRequest first(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 4096)}});
    ASSERT_EQ(disk_->Run(first), 0);  // so the queue is there
    model_->ClearLog();
    model_->Add({.kind = Kind::kHold, .times = kAlways});
  }
  // Has the model take them before the machine ends.
  absl::Duration RunAndCancel(uint32_t in_flight) {
    absl::Time cancelled;
    std::thread other([&] {
      EXPECT_TRUE(model_->WaitForHeld(in_flight));
      cancelled = absl::Now();
      testing::RunOn(disk_->io_thread(), [&] { disk_->Cancel(); });
    });
    disk_->Run(list_);
    const absl::Time over = absl::Now();
    other.join();
    return over - cancelled;
  }
  int ResultsOtherThan(int result) const {
    int others = 0;
    for (const auto& write : writes_) others += write->result == result ? 0 : 1;
    return others;
  }

  static constexpr uint32_t kWrites = 300;
  std::vector<std::unique_ptr<TestRequest>> writes_;
  std::vector<TestRequest*> list_;
};

TEST_F(NvmeCancelTest, WhatIsInFlightAndWhatWaitsIsCancelled) {
  Hold();
  EXPECT_LT(RunAndCancel(255), kAtOnce);
  EXPECT_EQ(ResultsOtherThan(-ECANCELED), 0);
  EXPECT_EQ(Executed().size(), 0);
  EXPECT_EQ(model_->held(), 0);
  EXPECT_EQ(Count("resets"), 0);
  TestRequest late(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 4096)}});
  EXPECT_EQ(disk_->Run(late), -ECANCELED);
  EXPECT_EQ(Executed().size(), 0);
}

TEST_F(NvmeCancelTest, WhatWasSubmittedInTheSameTurnIsNeverSent) {
  Hold();
  model_->ClearFaults();
  disk_->Run(list_, /*cancel=*/true);
  EXPECT_EQ(ResultsOtherThan(-ECANCELED), 0);
  EXPECT_EQ(Executed().size(), 0);
}

TEST_F(NvmeCancelTest, PiecesOfARequestEndWithIt) {
  Hold({.mdts = 1});
  TestRequest large(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 8 << 20)}});
  list_ = {&large};
  EXPECT_LT(RunAndCancel(255), kAtOnce);
  EXPECT_EQ(large.result, -ECANCELED);
}

// By a queue that stops or moves: what has not begun is not the controller's to do.
TEST_F(NvmeCancelTest, WhatIsRecalledBeginsNoMoreCommands) {
  Hold({.mdts = 1});
  TestRequest large(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 8 << 20)}});
  RequestOwner owner;
  list_.insert(list_.begin(), &large);
  for (TestRequest* request : list_) request->owner = &owner;
  std::thread other([&] {
    EXPECT_TRUE(model_->WaitForHeld(255));
    testing::RunOn(disk_->io_thread(), [&] { owner.recalls = true; });
    model_->ClearFaults();
    model_->Release();
  });
  disk_->Run(list_);
  other.join();
  EXPECT_EQ(large.result, -ECANCELED);
  EXPECT_EQ(ResultsOtherThan(-ECANCELED), 0);
  EXPECT_EQ(Executed().size(), 255u);
}

TEST_F(NvmeCancelTest, ADiskThatIsIdleEndsToo) {
  Hold();
  testing::RunOn(disk_->io_thread(), [&] { disk_->Cancel(); });
  TestRequest late(BlockOp::kFlush, 0);
  EXPECT_EQ(disk_->Run(late), -ECANCELED);
}

// What it still does afterwards it does to no memory.
TEST_F(NvmeCancelTest, AControllerThatDoesNotDeleteItsQueuesIsCutOff) {
  Hold({.ignores_bus_master = true});
  model_->Add({.kind = Kind::kHang,
               .admin = true,
               .opcode = static_cast<uint8_t>(nvme::AdminOp::kDeleteSq),
               .times = kAlways});
  model_->SetReady(testing::NvmeModelReady::kNeverCleared);
  const size_t mappings = model_->mappings();
  EXPECT_LT(RunAndCancel(255), kAtOnce);
  EXPECT_EQ(ResultsOtherThan(-ECANCELED), 0);
  EXPECT_EQ(model_->mappings(), mappings - 1);
  EXPECT_TRUE(Logged("cutting it off"));
}

TEST_F(NvmeCancelTest, AControllerThatIsBeingResetEndsToo) {
  Hold({.timeout = 255, .returns = true});
  model_->SetReady(testing::NvmeModelReady::kNeverCleared);
  absl::Time cancelled;
  std::thread other([&] {
    EXPECT_TRUE(model_->WaitForHeld(255));
    model_->SetFatal();
    EXPECT_TRUE(testing::SpinUntil([&] { return Logged("stopped by itself"); }));
    cancelled = absl::Now();  // of two minutes
    testing::RunOn(disk_->io_thread(), [&] { disk_->Cancel(); });
  });
  disk_->Run(list_);
  const absl::Time over = absl::Now();
  other.join();
  EXPECT_LT(over - cancelled, kAtOnce);
  EXPECT_EQ(ResultsOtherThan(-ECANCELED), 0);
}

}  // namespace
}  // namespace ringside
