// Queues whose memory the device takes its time to map or to unmap, as a server in another process
// may: who waits for that is the controller's thread, and no I/O thread.
#include "tests/support/nvme/nvme_disk.h"

namespace ringside {
namespace {

using testing::NvmeTest;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;

// Passes all on to another. A call that changes its mappings waits while the gate is shut.
class GatedDevice final : public PciDevice {
 public:
  struct Gate {
    // Who waits is let through in the end, so that a test fails and does not hang.
    void Pass() {
      if (!is_shut) return;
      ++waiting;
      if (!opened.WaitFor(absl::Seconds(20))) gave_up = true;
      --waiting;
    }
    void Open() {
      is_shut = false;
      opened.Notify();
    }

    std::atomic<bool> is_shut{false};
    std::atomic<int> waiting{0};
    std::atomic<bool> gave_up{false};
    Event opened;
  };

  GatedDevice(std::unique_ptr<PciDevice> device, Gate& gate)
      : device_(std::move(device)), gate_(gate) {}

  absl::Status MapDma(const DmaMapping& mapping) override {
    gate_.Pass();
    return device_->MapDma(mapping);
  }
  absl::Status UnmapDma(uint64_t iova, uint64_t size) override {
    gate_.Pass();
    return device_->UnmapDma(iova, size);
  }

  const std::string& name() const override { return device_->name(); }
  uint32_t ReadConfig(uint32_t offset, uint32_t size) override {
    return device_->ReadConfig(offset, size);
  }
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) override {
    device_->WriteConfig(offset, size, value);
  }
  uint32_t ReadBar(int bar, uint64_t offset) override { return device_->ReadBar(bar, offset); }
  void WriteBar(int bar, uint64_t offset, uint32_t value) override {
    device_->WriteBar(bar, offset, value);
  }
  absl::StatusOr<std::byte*> MapBar(int bar, uint64_t offset, uint64_t size) override {
    return device_->MapBar(bar, offset, size);
  }
  std::span<const IovaRange> iova_ranges() const override { return device_->iova_ranges(); }
  uint32_t vectors() const override { return device_->vectors(); }
  absl::Status SetVectors(std::span<const int> eventfds) override {
    return device_->SetVectors(eventfds);
  }
  void MaskVector(uint32_t vector) override { device_->MaskVector(vector); }
  bool UnmaskVector(uint32_t vector) override { return device_->UnmaskVector(vector); }
  absl::Status Reset() override { return device_->Reset(); }
  int gone_fd() const override { return device_->gone_fd(); }

 private:
  const std::unique_ptr<PciDevice> device_;
  Gate& gate_;
};

class NvmeQueueMemoryTest : public NvmeTest {
 protected:
  void SetUp() override {
    MakeModel({});
    auto controller = CreateNvmeController(
        std::make_unique<GatedDevice>(*attachment_->Connect(), gate_), {}, Logger(&log_));
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
  }
  std::unique_ptr<NvmeDevice> Device() {
    auto device = NvmeDevice::Create(controller_, {});
    const MemoryRegion region = memory_.region();
    EXPECT_TRUE((*device)->MapMemory({&region, 1}).ok());
    return *std::move(device);
  }
  std::unique_ptr<TestDisk> OpenOn(std::unique_ptr<NvmeDevice> device) {
    auto disk = std::make_unique<TestDisk>(std::move(device), IoThread::Waiter::kEpoll);
    EXPECT_TRUE(disk->status().ok()) << disk->status();
    return disk;
  }
  int Read(TestDisk& disk) {
    TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
    return disk.Run(read);
  }
  bool SomebodyWaits() {
    return testing::SpinUntil([&] { return gate_.waiting != 0; });
  }

  GatedDevice::Gate gate_;
};

TEST_F(NvmeQueueMemoryTest, OpeningAQueueWaitsForNobody) {
  auto device = Device();
  gate_.is_shut = true;
  const auto disk = OpenOn(std::move(device));
  EXPECT_FALSE(gate_.gave_up) << "the I/O thread has waited";
  EXPECT_TRUE(SomebodyWaits());
  gate_.Open();
  EXPECT_EQ(Read(*disk), 0);
}

// The memory of one that was closed is being unmapped.
TEST_F(NvmeQueueMemoryTest, ClosingAQueueHoldsNobodyWhoOpensOne) {
  auto first = OpenOn(Device());
  EXPECT_EQ(Read(*first), 0);
  auto device = Device();
  gate_.is_shut = true;
  first.reset();
  EXPECT_TRUE(SomebodyWaits());
  const auto second = OpenOn(std::move(device));
  EXPECT_FALSE(gate_.gave_up) << "the I/O thread has waited";
  gate_.Open();
  EXPECT_EQ(Read(*second), 0);
}

}  // namespace
}  // namespace ringside
