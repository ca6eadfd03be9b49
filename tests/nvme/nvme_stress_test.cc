// Two I/O threads on one NVMe controller that answers late, out of order, with errors, or not at
// all: every request is done exactly once, and what is read is what was written last.
#include <atomic>
#include <random>

#include "absl/strings/str_join.h"
#include "tests/support/nvme/nvme_disk.h"

namespace ringside {
namespace {

using testing::NvmeModelFault;
using testing::NvmeTest;
using testing::TestDisk;
using Kind = NvmeModelFault::Kind;

constexpr uint32_t kBlock = 4096;

// Keeps `kDepth` requests in flight on blocks of its own, and knows what each block must hold.
class Worker {
 public:
  static constexpr size_t kDepth = 32;
  static constexpr uint32_t kBlocks = 256;

  Worker(TestDisk& disk, const testing::DmaMemory& memory, uint32_t number, int requests)
      : disk_(disk), random_(number), first_block_(number * kBlocks), left_(requests) {
    for (size_t i = 0; i < kDepth; ++i) {
      Job& job = jobs_[i];
      job.worker = this;
      job.segment = memory.At((number * kDepth + i) * 2 * kBlock, kBlock);
      job.segments = {&job.segment, 1};
      job.done = [](BlockRequest& request) {
        auto& done = static_cast<Job&>(request);
        done.worker->Done(done);
      };
    }
  }

  // On its disk's thread.
  void Start() {
    for (Job& job : jobs_) Next(job);
  }
  bool Wait() { return over_.WaitFor(absl::Seconds(50)); }
  int failed() const { return failed_; }
  bool wrong() const { return wrong_; }

 private:
  struct Job : BlockRequest {
    Worker* worker = nullptr;
    Segment segment = {};
    uint32_t block = 0;
    uint64_t value = 0;
    bool busy = false;
  };
  // What a block may hold: what was written last, and what has failed since.
  struct Block {
    bool busy = false;
    std::vector<uint64_t> values = {0};
  };

  void Next(Job& job) {
    if (left_ == 0) {
      if (in_flight_ == 0) over_.Notify();
      return;
    }
    --left_;
    ++in_flight_;
    do {
      job.block = static_cast<uint32_t>(random_() % kBlocks);
    } while (blocks_[job.block].busy);
    blocks_[job.block].busy = true;
    job.busy = true;
    job.offset = uint64_t{first_block_ + job.block} * kBlock;
    const auto kind = random_() % 16;
    job.op = kind == 0 ? BlockOp::kFlush : kind < 8 ? BlockOp::kRead : BlockOp::kWrite;
    job.value = ++value_;
    if (job.op == BlockOp::kWrite) Fill(job, job.value);
    disk_.Submit(job);
  }

  void Done(Job& job) {
    if (!job.busy) wrong_ = true;  // a second time
    job.busy = false;
    --in_flight_;
    Block& block = blocks_[job.block];
    block.busy = false;
    if (job.result != 0) ++failed_;
    if (job.op == BlockOp::kWrite) {
      if (job.result == 0) block.values.clear();
      block.values.push_back(job.value);
    } else if (job.op == BlockOp::kRead && job.result == 0) {
      const uint64_t value = *reinterpret_cast<uint64_t*>(job.segment.host);
      if (std::ranges::find(block.values, value) == block.values.end()) wrong_ = true;
      if (*reinterpret_cast<uint64_t*>(job.segment.host + kBlock - 8) != value) wrong_ = true;
    }
    Next(job);
  }

  static void Fill(Job& job, uint64_t value) {
    for (uint32_t at = 0; at < kBlock; at += 8) {
      std::memcpy(job.segment.host + at, &value, sizeof value);
    }
  }

  TestDisk& disk_;
  std::mt19937 random_;
  const uint32_t first_block_;
  int left_;
  int in_flight_ = 0;
  uint64_t value_ = 0;
  std::array<Job, kDepth> jobs_;
  std::array<Block, kBlocks> blocks_;
  std::atomic<int> failed_{0};
  std::atomic<bool> wrong_{false};
  Event over_;
};

class NvmeStressTest : public NvmeTest, public ::testing::WithParamInterface<bool> {
 protected:
  // A busy machine may hold the model up, and three times that long in turn fails what is in
  // flight.
  NvmeStressTest() : NvmeTest(absl::Seconds(1)) {}

  // Has each of the kinds happen in turn, every 300 requests or so. A wrong identifier has another
  // generation: with another slot it might be that of a request under way, and nobody could tell.
  void Disturb(const std::vector<Kind>& kinds) {
    std::mt19937 random(4);
    for (uint32_t i = 0; i < 14; ++i) {
      model_->Add({.kind = kinds[i % kinds.size()],
                   .skip = i * 250 + static_cast<uint32_t>(random() % 100),
                   .status = nvme::kInternalError,
                   .delay_ns = 1'000'000,
                   .id_xor = static_cast<uint16_t>((random() | 1) << 8)});
    }
  }

  // The requests of both threads, with all that has been ordered of the model.
  void Run(int requests) {
    auto second = Open(1, IoThread::Waiter::kUring);
    ASSERT_TRUE(second->status().ok()) << second->status();
    Worker one(*disk_, memory_, 0, requests);
    Worker two(*second, memory_, 1, requests);
    testing::RunOn(disk_->io_thread(), [&] { one.Start(); });
    testing::RunOn(second->io_thread(), [&] { two.Start(); });
    ASSERT_TRUE(one.Wait());
    ASSERT_TRUE(two.Wait());
    EXPECT_FALSE(one.wrong());
    EXPECT_FALSE(two.wrong());
    failed_ = one.failed() + two.failed();
    // Their last requests are still being answered.
    testing::LetTurn(disk_->io_thread(), 1);
    testing::LetTurn(second->io_thread(), 1);
    timeouts_ = disk_->Count("timeouts") + second->Count("timeouts");
    resets_ = Count("resets");
  }

  int failed_ = 0;
  uint64_t timeouts_ = 0;
  uint64_t resets_ = 0;
};

TEST_P(NvmeStressTest, OutOfOrder) {
  Start({.shadow_doorbells = GetParam(), .service_ns = 5'000, .shuffle_seed = 1});
  Run(3000);
  EXPECT_EQ(failed_, 0);
}

TEST_P(NvmeStressTest, Failing) {
  Start({.shadow_doorbells = GetParam(), .service_ns = 5'000, .shuffle_seed = 2});
  Disturb({Kind::kStatus, Kind::kLoseCompletion, Kind::kHang, Kind::kWrongPhase, Kind::kDuplicate,
           Kind::kWrongId, Kind::kDelay});
  Run(2000);
  EXPECT_GT(resets_, 0);
  EXPECT_GT(timeouts_, 0);
  // Who meets faults three times is given up, but that is rare.
  EXPECT_LT(failed_, 5) << absl::StrJoin(log_.lines(), "\n");
}

// It says itself that it has stopped: under a name of its own, as not every program runs it.
class NvmeStoppingTest : public NvmeStressTest {};

TEST_P(NvmeStoppingTest, AllIsDoneAllTheSame) {
  Start({.shadow_doorbells = GetParam(), .service_ns = 5'000, .shuffle_seed = 3});
  Disturb({Kind::kFatal});
  Run(2000);
  EXPECT_GT(resets_, 3);
  EXPECT_LT(failed_, 5) << absl::StrJoin(log_.lines(), "\n");
}

INSTANTIATE_TEST_SUITE_P(Shadows, NvmeStressTest, ::testing::Bool());
INSTANTIATE_TEST_SUITE_P(Shadows, NvmeStoppingTest, ::testing::Bool());

}  // namespace
}  // namespace ringside
