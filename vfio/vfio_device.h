// A PCI device through the kernel's VFIO: a container of type1v2 for its IOMMU group.
//
// Threads and ownership: as PciDevice. One process has a group at a time; the kernel resets the
// device when that process ends, however it ends.
//
// A device is open with its memory decoding and without bus mastering, which is the driver's to set
// in the command register. SetVectors with another number of vectors than before switches MSI-X off
// and on; what came meanwhile is made good by writing each eventfd once. Reset leaves every vector
// unmasked.
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
