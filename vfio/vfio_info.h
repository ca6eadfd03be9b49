// What the kernel answers about containers and regions: structures of growing size, with a chain of
// capabilities behind them. Here they are bytes; a chain that is broken is an error, never a fault.
//
// Threads: any; functions of their arguments. Units: bytes.
// Spec: linux/vfio.h (struct vfio_info_cap_header and the capabilities' own).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "vfio/pci_device.h"

namespace ringside {

// Calls `query` (an ioctl: 0, or -1 with errno) with `ask`, a structure that begins with argsz, and
// again with as much room as it asks for.
absl::StatusOr<std::vector<std::byte>> QueryVfioInfo(std::span<const std::byte> ask,
                                                     const std::function<int(void*)>& query);

// Of a struct vfio_region_info.
struct VfioRegion {
  uint64_t offset = 0;  // of its first byte in the device's descriptor
  uint64_t size = 0;
  bool msix_mappable = false;  // the MSI-X table may be mapped like any other page
  std::vector<MappableArea> areas;
};
absl::StatusOr<VfioRegion> ParseVfioRegion(std::span<const std::byte> info);

// Of a struct vfio_iommu_type1_info: where mappings may lie, ascending. None if the kernel does not
// tell (before Linux 5.4).
absl::StatusOr<std::optional<std::vector<IovaRange>>> ParseIovaRanges(
    std::span<const std::byte> info);

}  // namespace ringside
