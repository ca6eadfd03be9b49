// An IOMMU group in user hands: what must hold before the kernel gives it, and why it does not.
//
// Threads: any one. The group is given back when its descriptor is closed.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "vfio/pci_sysfs.h"

namespace ringside {

// Opens the group of a device that vfio-pci has. Each error names the device, and what to do:
// FailedPrecondition if there is no IOMMU, if the device or another of its group has another
// driver, or if a process uses the group; PermissionDenied if this one may not.
absl::StatusOr<UniqueFd> OpenVfioGroup(const PciSysfs& sysfs, const std::string& address);

// Whether OpenVfioDevice can be expected to succeed; the device is not touched.
absl::Status CheckVfioDevice(const std::string& address);

}  // namespace ringside
