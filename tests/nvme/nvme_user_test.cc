// An NVMe controller in another process, at the machine's end: a server that stands still, as one
// that was stopped, or answers each message slowly, holds nobody.
#include <cerrno>
#include <gmock/gmock.h>
#include <thread>

#include "nvme/nvme_device.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/directories.h"
#include "tests/support/nvme/dma_memory.h"
#include "tests/support/recording_log.h"
#include "tests/support/vfio/vfio_user_server.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

using testing::kAllIova;
using testing::NvmeModel;
using testing::NvmeModelConfig;
using testing::NvmeModelFault;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;
using testing::VfioUserServer;

constexpr absl::Duration kAtOnce = absl::Seconds(4);  // a limit of the product's own takes longer

NvmeModelConfig Config() {
  NvmeModelConfig config;
  config.iova_ranges = kAllIova;
  config.deletes_busy = true;
  return config;
}

class NvmeUserCancelTest : public ::testing::Test {
 protected:
  NvmeUserCancelTest() {
    disk_ = std::make_unique<TestDisk>(Device(), IoThread::Waiter::kEpoll);
    TestRequest first(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
    EXPECT_EQ(disk_->Run(first), 0);  // so the queue is there
    model_.Add({.kind = NvmeModelFault::Kind::kHold, .times = 1'000'000});
  }
  std::unique_ptr<NvmeDevice> Device() {
    auto device = OpenVfioUserDevice(path_);
    auto controller = CreateNvmeController(*std::move(device), {}, Logger(&log_));
    auto disk = NvmeDevice::Create(*std::move(controller), {});
    const MemoryRegion region = memory_.region();
    if (!(*disk)->MapMemory({&region, 1}).ok()) std::abort();
    return *std::move(disk);
  }
  // Requests that are held; `stop` is called when they are, and then the machine is over. How long
  // they take to end.
  template <typename Stop>
  absl::Duration RunAndCancel(Stop stop) {
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> list;
    for (uint32_t i = 0; i < 300; ++i) {
      list.push_back(requests
                         .emplace_back(std::make_unique<TestRequest>(
                             BlockOp::kRead, 0, Pieces{{memory_.At(i * 4096, 4096)}}))
                         .get());
    }
    absl::Time cancelled;
    std::thread other([&] {
      EXPECT_TRUE(model_.WaitForHeld(255));
      stop();
      cancelled = absl::Now();
      testing::RunOn(disk_->io_thread(), [&] { disk_->Cancel(); });
    });
    disk_->Run(list);
    const absl::Time over = absl::Now();
    other.join();
    for (const auto& request : requests) EXPECT_EQ(request->result, -ECANCELED);
    return over - cancelled;
  }
  // The controller and its server, too.
  void ExpectAnEndAtOnce() {
    const absl::Time start = absl::Now();
    disk_.reset();
    EXPECT_LT(absl::Now() - start, 2 * kAtOnce);
  }

  const testing::TempDirectory directory_;
  const std::string path_ = directory_ / "socket";
  testing::RecordingLog log_;
  testing::DmaMemory memory_;
  NvmeModel model_{Config()};
  VfioUserServer server_{path_, model_};
  std::unique_ptr<TestDisk> disk_;
};

TEST_F(NvmeUserCancelTest, AServerThatStandsStillHoldsNobody) {
  EXPECT_LT(RunAndCancel([&] { server_.Pause(); }), kAtOnce);
  ExpectAnEndAtOnce();
}

// The controller's thread waits for its answer already, for up to five seconds.
TEST_F(NvmeUserCancelTest, AServerThatHasStoodStillForAWhileHoldsNobody) {
  EXPECT_LT(RunAndCancel([&] {
              server_.Pause();
              absl::SleepFor(absl::Milliseconds(1200));  // a tick, which looks at CSTS
            }),
            kAtOnce);
  ExpectAnEndAtOnce();
}

// Each answer is soon enough, and there is always one more to wait for.
TEST_F(NvmeUserCancelTest, AServerThatIsSlowWithEachAnswerHoldsNobody) {
  model_.Add({.kind = NvmeModelFault::Kind::kHang,
              .admin = true,
              .opcode = static_cast<uint8_t>(nvme::AdminOp::kDeleteSq),
              .times = 1'000'000});
  EXPECT_LT(RunAndCancel([&] { server_.SetDelay(absl::Milliseconds(200)); }), kAtOnce);
  ExpectAnEndAtOnce();
}

TEST_F(NvmeUserCancelTest, AServerThatIsGoneHoldsNobody) {
  EXPECT_LT(RunAndCancel([&] {
              server_.DieAfter(0);
              EXPECT_TRUE(testing::SpinUntil([&] {
                return std::ranges::any_of(log_.lines(), [](const std::string& line) {
                  return line.find("waiting 30s for it") != std::string::npos;
                });
              }));
            }),
            kAtOnce);
  ExpectAnEndAtOnce();
}

// Nobody has opened a queue, so no channel can say that the machine is over.
TEST_F(NvmeUserCancelTest, AServerThatStandsStillHoldsNobodyWhoHasNoQueue) {
  disk_.reset();
  ASSERT_TRUE(testing::SpinUntil([&] { return !server_.has_client(); }));
  auto device = Device();
  server_.Pause();
  const absl::Time start = absl::Now();
  device->EndSoon();
  device.reset();
  EXPECT_LT(absl::Now() - start, 2 * kAtOnce);
}

}  // namespace
}  // namespace ringside
