// A disk on the NVMe model, and memory that the model reaches.
#pragma once

#include <gmock/gmock.h>
#include <map>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "block/nvme_device.h"
#include "tests/support/nvme_model.h"
#include "tests/support/recording_log.h"
#include "tests/support/test_disk.h"

namespace ringside::testing {

// Guest memory, of which tests take pieces where they want them.
class DmaMemory {
 public:
  static constexpr uint64_t kSize = uint64_t{16} << 20;
  static constexpr uint64_t kGuestAddress = 0x100000;

  DmaMemory()
      : host_(static_cast<std::byte*>(
            mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~DmaMemory() { munmap(host_, kSize); }
  DmaMemory(const DmaMemory&) = delete;

  Segment At(uint64_t offset, uint32_t length) const {
    return {.host = host_ + offset, .length = length, .region = 0};
  }
  MemoryRegion region() const {
    return {.guest_address = kGuestAddress,
            .size = kSize,
            .host = host_,
            .fd = -1,
            .fd_offset = 0,
            .index = 0};
  }

 private:
  std::byte* const host_;
};

// Whatever a test does, the model must have nothing to complain of.
class NvmeTest : public ::testing::Test {
 protected:
  // Long, but where a test waits for it.
  explicit NvmeTest(absl::Duration timeout = absl::Seconds(20)) : timeout_(timeout) {}

  void Start(const NvmeModelConfig& config = {}) {
    model_ = std::make_unique<NvmeModel>(config);
    Connect();
  }
  void Connect() {
    auto controller = CreateNvmeController(model_->Attach(), {.timeout = timeout_}, Logger(&log_));
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
    disk_ = Open(1);
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  std::unique_ptr<TestDisk> Open(uint32_t nsid, IoThread::Waiter waiter = IoThread::Waiter::kEpoll,
                                 const PollConfig& poll = {}) {
    absl::StatusOr<std::unique_ptr<NvmeDevice>> device =
        NvmeDevice::Create(controller_, {.namespace_id = nsid});
    if (!device.ok()) return std::make_unique<TestDisk>(device.status(), waiter);
    const MemoryRegion region = memory_.region();
    if (absl::Status status = (*device)->MapMemory({&region, 1}); !status.ok()) {
      return std::make_unique<TestDisk>(status, waiter);
    }
    devices_[nsid] = device->get();
    return std::make_unique<TestDisk>(*std::move(device), waiter, poll);
  }
  void Disconnect() {
    disk_.reset();
    controller_.reset();
  }
  void TearDown() override {
    Disconnect();
    if (model_ == nullptr) return;
    EXPECT_THAT(model_->violations(), ::testing::IsEmpty());
  }

  NvmeStatistics statistics(uint32_t nsid = 1) { return devices_[nsid]->statistics(); }
  bool Logged(const std::string& text) const {
    for (const std::string& line : log_.lines()) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }
  // Commands of I/O queues that the model has executed.
  std::vector<NvmeModelExecuted> Executed() const {
    std::vector<NvmeModelExecuted> executed;
    for (const NvmeModelExecuted& each : model_->log()) {
      if (each.queue != 0) executed.push_back(each);
    }
    return executed;
  }

  const absl::Duration timeout_;
  RecordingLog log_;
  DmaMemory memory_;
  std::unique_ptr<NvmeModel> model_;
  std::shared_ptr<NvmeController> controller_;
  std::map<uint32_t, NvmeDevice*> devices_;  // by namespace
  std::unique_ptr<TestDisk> disk_;
};

inline std::string Pattern(size_t size, char seed) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(seed + i * 7 + i / 512);
  return text;
}

}  // namespace ringside::testing
