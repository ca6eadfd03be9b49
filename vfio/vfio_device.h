// A PCI device through the kernel's VFIO: a container of type1v2 for its IOMMU group.
//
// Threads and ownership: as PciDevice. One process has a group at a time; the kernel resets the
// device when that process ends, however it ends.
// Source: Documentation/driver-api/vfio.rst, linux/vfio.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "vfio/pci_device.h"

namespace ringside {

// `address`: such as "0000:00:04.0". On any error the device is as it was.
absl::StatusOr<std::unique_ptr<PciDevice>> OpenVfioDevice(const std::string& address);

}  // namespace ringside
