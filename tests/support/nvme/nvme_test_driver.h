// The least that speaks to an NVMe controller, field by field: for what no driver would do.
//
// Threads: one. Ownership: the device outlives it.
// Source: NVM Express Base Specification 2.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <sys/mman.h>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/nvme/nvme_model_spec.h"
#include "tests/support/wait.h"
#include "vfio/mmio.h"
#include "vfio/pci_device.h"

namespace ringside::testing {

class NvmeTestDriver {
 public:
  static constexpr uint64_t kIova = 0x10'0000;
  static constexpr uint64_t kMemory = 1 << 20;
  static constexpr uint32_t kEntries = 16;
  // Pages of that memory; queue n has pages 2n and 2n + 1.
  static constexpr uint64_t kListPage = 32;
  static constexpr uint64_t kBufferPage = 40;
  static constexpr uint64_t kShadowPage = 48;
  static constexpr uint64_t kEventPage = 49;
  static constexpr uint64_t kDataPage = 64;
  static constexpr absl::Duration kShort = absl::Milliseconds(50);

  explicit NvmeTestDriver(PciDevice& device) : device_(device) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stride_ = nvme::Capabilities(device.ReadBar(0, nvme::kCap) |
                                 uint64_t{device.ReadBar(0, nvme::kCap + 4)} << 32)
                  .doorbell_stride();
    doorbells_ = device.MapBar(0, nvme::kDoorbells, nvme::kPageSize).value();
    mapped_ = device.MapDma({.host = memory_, .size = kMemory, .iova = kIova});
  }
  ~NvmeTestDriver() {
    if (mapped_.ok()) (void)device_.UnmapDma(kIova, kMemory);
    munmap(memory_, kMemory);
  }

  const absl::Status& mapped() const { return mapped_; }
  static uint64_t Iova(uint64_t page, uint64_t offset = 0) {
    return kIova + page * nvme::kPageSize + offset;
  }
  std::byte* At(uint64_t page, uint64_t offset = 0) {
    return memory_ + page * nvme::kPageSize + offset;
  }
  uint32_t status() { return device_.ReadBar(0, nvme::kCsts); }
  bool WaitForStatus(uint32_t bits, uint32_t value, absl::Duration limit = kWaitLimit) {
    const absl::Time deadline = absl::Now() + limit;
    while ((status() & bits) != value) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Microseconds(50));
    }
    return true;
  }

  // Up to RDY, with an admin queue.
  bool Enable(absl::Duration limit = kWaitLimit) {
    device_.WriteConfig(4, 2, 0x406);
    rings_.clear();
    rings_.emplace(0, Indices{});
    std::memset(At(0), 0, size_t{2} * nvme::kPageSize);
    device_.WriteBar(0, nvme::kAqa, (kEntries - 1) << 16 | (kEntries - 1));
    device_.WriteBar(0, nvme::kAsq, Iova(0));
    device_.WriteBar(0, nvme::kAsq + 4, 0);
    device_.WriteBar(0, nvme::kAcq, Iova(1));
    device_.WriteBar(0, nvme::kAcq + 4, 0);
    device_.WriteBar(0, nvme::kCc, nvme::kCcEntrySizes | nvme::kCcEnable);
    return WaitForStatus(nvme::kCstsReady, nvme::kCstsReady, limit);
  }
  bool Disable(absl::Duration limit = kWaitLimit) {
    device_.WriteBar(0, nvme::kCc, nvme::kCcEntrySizes);
    return WaitForStatus(nvme::kCstsReady, 0, limit);
  }
  // A pair with interrupts on its own vector.
  nvme::Status CreateQueue(uint16_t id) {
    std::memset(At(2 * id), 0, size_t{2} * nvme::kPageSize);
    const nvme::Status status =
        Admin(nvme::AdminOp::kCreateCq,
              {.prp1 = Iova(2 * id + 1),
               .cdw10 = (kEntries - 1) << 16 | id,
               .cdw11 = uint32_t{id} << 16 | nvme::kQueueInterrupts | nvme::kQueueContiguous})
            .status;
    if (status != nvme::kSuccess) return status;
    rings_[id] = {};
    return Admin(nvme::AdminOp::kCreateSq, {.prp1 = Iova(2 * id),
                                            .cdw10 = (kEntries - 1) << 16 | id,
                                            .cdw11 = uint32_t{id} << 16 | nvme::kQueueContiguous})
        .status;
  }

  // The identifier it gives the command, unless one is given.
  uint16_t Push(uint16_t queue, nvme::Command command, std::optional<uint16_t> id = {}) {
    Indices& ring = rings_[queue];
    command.id = id.value_or(next_id_++);
    std::memcpy(At(2 * queue, ring.tail * sizeof command), &command, sizeof command);
    ring.tail = (ring.tail + 1) % kEntries;
    return command.id;
  }
  void Ring(uint16_t queue) { WriteTail(queue, rings_[queue].tail); }
  void WriteTail(uint16_t queue, uint32_t value) { WriteDoorbell(queue, false, value); }
  void WriteHead(uint16_t queue, uint32_t value) { WriteDoorbell(queue, true, value); }
  uint32_t tail(uint16_t queue) { return rings_[queue].tail; }
  uint32_t head(uint16_t queue) { return rings_[queue].head; }

  // The next entry, taken but not acknowledged. Its status is without the phase.
  std::optional<nvme::Completion> Take(uint16_t queue, absl::Duration limit = kWaitLimit) {
    Indices& ring = rings_[queue];
    std::byte* at = At(2 * queue + 1, ring.head * sizeof(nvme::Completion));
    const auto* status = reinterpret_cast<uint16_t*>(at + offsetof(nvme::Completion, status));
    const absl::Time deadline = absl::Now() + limit;
    while ((LoadAcquire(status) & 1) != ring.phase) {
      if (absl::Now() > deadline) return std::nullopt;
      absl::SleepFor(absl::Microseconds(20));
    }
    nvme::Completion completion;
    std::memcpy(&completion, at, sizeof completion);
    completion.status = nvme::StatusOf(completion.status);
    ring.head = (ring.head + 1) % kEntries;
    if (ring.head == 0) ring.phase ^= 1;
    return completion;
  }
  std::optional<nvme::Completion> Wait(uint16_t queue, absl::Duration limit = kWaitLimit) {
    const auto completion = Take(queue, limit);
    if (completion) WriteHead(queue, rings_[queue].head);
    return completion;
  }
  // What a command ends in; kNothing after a while.
  static constexpr nvme::Status kNothing = 0x7fff;
  nvme::Completion Do(uint16_t queue, const nvme::Command& command) {
    const uint16_t id = Push(queue, command);
    Ring(queue);
    const auto completion = Wait(queue);
    if (!completion || completion->id != id) return {.status = kNothing};
    return *completion;
  }
  nvme::Completion Admin(nvme::AdminOp op, nvme::Command command = {}) {
    command.opcode = static_cast<uint8_t>(op);
    return Do(0, command);
  }

  // One page at most, the one of kDataPage + `page`.
  static nvme::Command Io(nvme::IoOp op, uint64_t start, uint32_t blocks = 1, uint64_t page = 0) {
    return {.opcode = static_cast<uint8_t>(op),
            .nsid = 1,
            .prp1 = Iova(kDataPage + page),
            .cdw10 = static_cast<uint32_t>(start),
            .cdw11 = static_cast<uint32_t>(start >> 32),
            .cdw12 = blocks - 1};
  }
  nvme::Status Write(uint64_t start, char content, uint32_t flags = 0) {
    std::memset(At(kDataPage), content, 512);
    nvme::Command command = Io(nvme::IoOp::kWrite, start);
    command.cdw12 |= flags;
    return Do(1, command).status;
  }
  // The first byte of a block, or -1.
  int Read(uint64_t start) {
    *At(kDataPage) = std::byte{0xee};
    if (Do(1, Io(nvme::IoOp::kRead, start)).status != nvme::kSuccess) return -1;
    return static_cast<int>(*At(kDataPage));
  }
  nvme::Status Flush() { return Do(1, Io(nvme::IoOp::kFlush, 0)).status; }

 private:
  struct Indices {
    uint32_t tail = 0;
    uint32_t head = 0;
    uint16_t phase = 1;
  };
  void WriteDoorbell(uint16_t queue, bool completion, uint32_t value) {
    const uint64_t offset = nvme::DoorbellOffset(queue, completion, stride_);
    StoreRelease(reinterpret_cast<uint32_t*>(doorbells_ + offset), value);
  }

  PciDevice& device_;
  std::byte* memory_;
  std::byte* doorbells_;
  uint32_t stride_;
  absl::Status mapped_;
  std::map<uint16_t, Indices> rings_;
  uint16_t next_id_ = 0;
};

}  // namespace ringside::testing
