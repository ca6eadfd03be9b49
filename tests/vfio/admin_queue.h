// The admin queue of a real NVMe controller, driven by hand: only what shows that registers, DMA
// and interrupts work.
#pragma once

#include <cstring>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/nvme/nvme_model_spec.h"
#include "tests/support/shared_pages.h"
#include "tests/support/wait.h"
#include "vfio/mmio.h"
#include "vfio/pci_device.h"

namespace ringside::testing {

// Submission queue at offset 0 of the memory, completion queue in the next page.
class AdminQueue {
 public:
  static constexpr uint16_t kEntries = 16;

  // `iova`: where `memory` is mapped for `device`.
  AdminQueue(PciDevice& device, const SharedPages& memory, uint64_t iova)
      : device_(device), memory_(memory), iova_(iova) {}

  uint64_t ReadCap() {
    return device_.ReadBar(0, nvme::kCap) | uint64_t{device_.ReadBar(0, nvme::kCap + 4)} << 32;
  }

  // With bus mastering, and vector 0 for interrupts.
  void Enable() {
    constexpr uint32_t kCommand = 4, kBusMaster = 4;
    device_.WriteConfig(kCommand, 2, device_.ReadConfig(kCommand, 2) | kBusMaster);
    device_.WriteBar(0, nvme::kCc, 0);
    ASSERT_TRUE(AwaitReady(0));
    std::memset(memory_.host(), 0, size_t{2} * nvme::kPageSize);
    tail_ = head_ = 0;
    device_.WriteBar(0, nvme::kAqa, (kEntries - 1) << 16 | (kEntries - 1));
    WriteAddress(nvme::kAsq, iova_);
    WriteAddress(nvme::kAcq, iova_ + nvme::kPageSize);
    device_.WriteBar(0, nvme::kCc, nvme::kCcEnable | nvme::kCcEntrySizes);
    ASSERT_TRUE(AwaitReady(nvme::kCstsReady));
    const auto doorbells = device_.MapBar(0, nvme::kDoorbells, 8);
    ASSERT_TRUE(doorbells.ok()) << doorbells.status();
    doorbells_ = reinterpret_cast<uint32_t*>(*doorbells);
  }

  // Asks for the controller's identity at an I/O address.
  void SendIdentify(uint64_t data) {
    nvme::Command command{.opcode = static_cast<uint8_t>(nvme::AdminOp::kIdentify),
                          .id = tail_,
                          .prp1 = data,
                          .cdw10 = nvme::kCnsController};
    std::memcpy(memory_.host() + tail_ * sizeof command, &command, sizeof command);
    tail_ = (tail_ + 1) % kEntries;
    StoreRelease(doorbells_, uint32_t{tail_});
  }

  // The next completion's status, at most one round of the queue; all ones if none comes.
  nvme::Status Await() {
    auto* const entry =
        reinterpret_cast<nvme::Completion*>(memory_.host() + nvme::kPageSize) + head_;
    if (!SpinUntil([&] { return (LoadAcquire(&entry->status) & 1) != 0; })) return 0xffff;
    head_ = (head_ + 1) % kEntries;
    StoreRelease(doorbells_ + 1, uint32_t{head_});
    return nvme::StatusOf(entry->status) & nvme::kStatusCode;
  }

 private:
  bool AwaitReady(uint32_t ready) {
    return SpinUntil([&] { return (device_.ReadBar(0, nvme::kCsts) & nvme::kCstsReady) == ready; });
  }
  void WriteAddress(uint64_t offset, uint64_t address) {
    device_.WriteBar(0, offset, static_cast<uint32_t>(address));
    device_.WriteBar(0, offset + 4, static_cast<uint32_t>(address >> 32));
  }

  PciDevice& device_;
  const SharedPages& memory_;
  const uint64_t iova_;
  uint32_t* doorbells_ = nullptr;  // of stride 4: the admin queue's are first whatever it is
  uint16_t tail_ = 0;
  uint16_t head_ = 0;
};

}  // namespace ringside::testing
