// A disk on the NVMe model, and memory that the model reaches.
#pragma once

#include <gmock/gmock.h>
#include <memory>
#include <string>
#include <vector>

#include "nvme/nvme_device.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/nvme/dma_memory.h"
#include "tests/support/nvme/nvme_attachment.h"
#include "tests/support/nvme/nvme_model.h"
#include "tests/support/recording_log.h"

namespace ringside::testing {

// Whatever a test does, the model must have nothing to complain of.
class NvmeTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kLong = absl::Seconds(20);  // for a time that no test waits for
  explicit NvmeTest(absl::Duration timeout = kLong) : timeout_(timeout) {}

  void Start(const NvmeModelConfig& config = {}) {
    MakeModel(config);
    Connect();
  }
  void MakeModel(const NvmeModelConfig& config) {
    model_ = std::make_unique<NvmeModel>(NvmeAttachment::Prepare(config));
    attachment_ = std::make_unique<NvmeAttachment>(*model_);
  }
  void Connect() {
    auto device = attachment_->Connect();
    ASSERT_TRUE(device.ok()) << device.status();
    NvmeSettings settings = settings_;
    settings.timeout = timeout_;
    auto controller = CreateNvmeController(*std::move(device), settings, Logger(&log_));
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
    return std::make_unique<TestDisk>(*std::move(device), waiter, poll);
  }
  void Disconnect() {
    disk_.reset();
    controller_.reset();
    if (attachment_ != nullptr) attachment_->WaitForEnd();
  }
  void TearDown() override {
    Disconnect();
    if (model_ == nullptr) return;
    EXPECT_THAT(model_->violations(), ::testing::IsEmpty());
    EXPECT_THAT(attachment_->violations(), ::testing::IsEmpty());
  }

  uint64_t Count(std::string_view name) const { return disk_->Count(name); }
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

  absl::Duration timeout_;
  NvmeSettings settings_;  // all but the time-out
  RecordingLog log_;
  DmaMemory memory_;
  std::unique_ptr<NvmeModel> model_;
  std::unique_ptr<NvmeAttachment> attachment_;
  std::shared_ptr<NvmeController> controller_;
  std::unique_ptr<TestDisk> disk_;
};

}  // namespace ringside::testing
