// The address space that an NVMe controller sees: guest memory at its guest physical addresses
// where the IOMMU allows that, so that an I/O address is one addition, and the driver's own memory
// at the other end.
//
// Threads: any.
// Ownership: the device outlives the space, which outlives the buffers taken from it.
// Errors: as PciDevice; FailedPrecondition if the space is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/memory_region.h"
#include "base/sync.h"
#include "vfio/pci_device.h"

namespace ringside {

class DmaSpace;

// Zeroed memory of the driver's that the device reaches once it is mapped, in whole pages; a memfd,
// which a device in another process can be given. Its end takes the mapping back, which may wait
// for the device.
class DmaBuffer {
 public:
  // Waits for nobody.
  static absl::StatusOr<DmaBuffer> Create(uint64_t size);
  DmaBuffer() = default;
  DmaBuffer(DmaBuffer&& other) noexcept { *this = std::move(other); }
  DmaBuffer& operator=(DmaBuffer&& other) noexcept;
  ~DmaBuffer();

  std::byte* data() const { return data_; }
  bool mapped() const { return space_ != nullptr; }
  // Once it is mapped.
  uint64_t iova() const { return iova_; }
  // Of something in it.
  uint64_t IovaOf(const void* address) const {
    return iova_ + static_cast<uint64_t>(static_cast<const std::byte*>(address) - data_);
  }

 private:
  friend class DmaSpace;
  DmaSpace* space_ = nullptr;
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t iova_ = 0;
};

// What to add to an address of the host to have the device's, by MemoryRegion::index.
using IovaOffsets = std::vector<uint64_t>;

class DmaSpace {
 public:
  explicit DmaSpace(PciDevice& device);

  // May wait for the device, as long as an answer of it takes.
  absl::Status Map(DmaBuffer& buffer);
  absl::StatusOr<DmaBuffer> Allocate(uint64_t size);  // mapped
  // All of them or none. They stay until CutOff or the end of the device.
  absl::StatusOr<IovaOffsets> MapMemory(std::span<const MemoryRegion> regions);
  // From now on the device reaches no guest memory, whatever state it is in.
  void CutOff();

 private:
  friend class DmaBuffer;
  struct Mapped {
    uint64_t iova;
    uint64_t size;
  };

  absl::StatusOr<uint64_t> MapRegion(const MemoryRegion& region);
  bool TakeAt(uint64_t iova, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> TakeLowest(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> TakeHighest(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(uint64_t iova, uint64_t size);
  void Unmap(std::span<const Mapped> mapped);

  PciDevice& device_;
  Mutex mutex_;
  std::vector<IovaRange> free_ ABSL_GUARDED_BY(mutex_);  // ascending, never touching
  std::vector<Mapped> guest_memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
