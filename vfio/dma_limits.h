// Why the kernel refuses to map memory for DMA, in words that name what to raise.
//
// Threads: any.
// Spec: getrlimit(2), proc(5), Documentation/driver-api/vfio.rst; dma_entry_limit is a parameter
// of the module vfio_iommu_type1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "vfio/pci_device.h"

namespace ringside {

// Memory that a device reaches is locked; how much of it a process may have.
struct LockedMemory {
  uint64_t limit = 0;   // bytes, RLIMIT_MEMLOCK
  uint64_t locked = 0;  // bytes, now
  bool exempt = false;  // by CAP_IPC_LOCK
};
LockedMemory ReadLockedMemory();
// `status`: text of /proc/PID/status.
LockedMemory ParseLockedMemory(const std::string& status, uint64_t limit);

// `entry_limit`: the parameter's value, empty if it cannot be read.
absl::Status MapDmaError(int error, const std::string& device, const DmaMapping& mapping,
                         const LockedMemory& memory, std::string_view entry_limit);
std::string ReadDmaEntryLimit();

}  // namespace ringside
