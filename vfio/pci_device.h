// A PCI device in user hands: its registers, its DMA and its interrupts, whoever provides them: the
// kernel (vfio_device.h), another process (vfio_user_device.h), or in tests a model.
//
// Threads: any; calls that change the same thing (DMA at the same address, the vectors) do not
// overlap. A mapped BAR is memory.
// Ownership: memory given to MapDma stays until UnmapDma or the end of the device, which ends all
// DMA and all interrupts.
// Units: bytes. Errors: a device that is gone reads as all ones, and writes to it go nowhere, as on
// the bus; InvalidArgument, NotFound, PermissionDenied and FailedPrecondition are the user's to
// mend and say how.
// Spec: PCI Local Bus 3.0, sections 6.1 and 6.8.2 (MSI-X).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

// Class, subclass and programming interface of an NVMe I/O controller: NVM Express PCIe Transport
// 1.0, section 3.8.1.
inline constexpr uint32_t kNvmePciClass = 0x010802;

struct IovaRange {
  uint64_t first;
  uint64_t last;  // itself in the range, so that one may reach to the end of the address space
};

// Whole pages.
struct DmaMapping {
  std::byte* host;
  uint64_t size;
  uint64_t iova;           // where the device sees it
  int fd = -1;             // of the mapping, for providers in another process; -1: private memory
  uint64_t fd_offset = 0;  // of `host` in fd
};

// What of a BAR may be mapped.
struct MappableArea {
  uint64_t offset;  // in the BAR
  uint64_t size;
};

struct PciBar {
  uint64_t size = 0;  // 0: there is none
  std::vector<MappableArea> mappable;
};

class PciDevice {
 public:
  virtual ~PciDevice() = default;

  // What messages call it, such as "0000:00:04.0".
  virtual const std::string& name() const = 0;

  // Configuration space: 1, 2 or 4 bytes at a multiple of that.
  virtual uint32_t ReadConfig(uint32_t offset, uint32_t size) = 0;
  virtual void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) = 0;

  // A register of 32 bits in a BAR, for all that is no hot path.
  virtual uint32_t ReadBar(int bar, uint64_t offset) = 0;
  virtual void WriteBar(int bar, uint64_t offset, uint32_t value) = 0;
  // Registers as memory, to be accessed as mmio.h says; stays as long as the device. `offset` need
  // not be a page's.
  virtual absl::StatusOr<std::byte*> MapBar(int bar, uint64_t offset, uint64_t size) = 0;

  // For who hands the device on as a whole; a provider that is only driven offers none of it, and
  // its BARs have no size. What kind a BAR is says configuration space.
  virtual PciBar bar(int /*bar*/) const { return {}; }
  // Of registers that may not be mapped: 1, 2, 4 or 8 bytes at a multiple of that.
  virtual void ReadRegisters(int bar, uint64_t offset, std::span<std::byte> data);
  virtual void WriteRegisters(int /*bar*/, uint64_t /*offset*/, std::span<const std::byte>) {}

  // Where mappings may lie. Ascending.
  virtual std::span<const IovaRange> iova_ranges() const = 0;
  virtual absl::Status MapDma(const DmaMapping& mapping) = 0;
  // Exactly what was mapped at once. The device cannot reach it any more afterwards.
  virtual absl::Status UnmapDma(uint64_t iova, uint64_t size) = 0;

  // How many MSI-X vectors it has; 0: none.
  virtual uint32_t vectors() const = 0;
  // From now on vector i writes eventfds[i]. Replaces what was set before.
  virtual absl::Status SetVectors(std::span<const int> eventfds) = 0;
  // Holds the interrupt of a vector back from about now on, for one who looks by himself: a wish,
  // which a device may ignore. Cheap, but nothing for every I/O. After SetVectors, one thread a
  // vector.
  virtual void MaskVector(uint32_t vector) = 0;
  // Lets it through again; what came meanwhile is signalled, or was not since it was there to be
  // seen before this returned. False: that is only asked for yet; whoever wants to sleep calls
  // again until it is true.
  virtual bool UnmaskVector(uint32_t vector) = 0;

  // Resets the function: it does no DMA any more until it is set up anew. Mappings and vectors
  // stay. FailedPrecondition where the device has no such reset; Unavailable if the device is gone
  // and may come back.
  virtual absl::Status Reset() = 0;

  // The machine is over: no answer of the device is waited for beyond `end_ns` (MonotonicNs),
  // however many are asked for, also where one is being waited for already; a device that takes
  // longer is gone, and what is asked of it then fails at once. None that is gone comes back from
  // now on. The earliest end counts. Does not wait. For devices whose answers can be late at all.
  virtual void Hurry(int64_t /*end_ns*/) {}

  // Readable once the device is gone, until a Reset succeeds. -1: nothing tells.
  virtual int gone_fd() const { return -1; }
};

}  // namespace ringside
