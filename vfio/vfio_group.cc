#include "vfio/vfio_group.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "vfio/open_files.h"
#include "vfio/pci_device.h"

namespace ringside {
namespace {

constexpr std::string_view kVfioPci = "vfio-pci";

// Drivers that do no DMA of their own, with which the kernel lets a group go (they claim it with
// driver_managed_dma, linux/pci.h).
constexpr std::array<std::string_view, 4> kHarmlessDrivers = {kVfioPci, "pci-stub", "pcieport",
                                                              "shpchp"};

template <typename... Args>
absl::Status Precondition(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::FailedPreconditionError(absl::StrFormat(format, args...));
}

absl::Status NoIommu(const std::string& address) {
  return Precondition(
      "PCI device '%s' is behind no IOMMU, which VFIO needs; boot the host with intel_iommu=on or "
      "amd_iommu=on on its kernel's command line, and switch on VT-d or AMD-Vi in its firmware",
      address);
}

absl::Status OtherDriver(const PciSysfsDevice& device) {
  const std::string has =
      device.driver.empty() ? "no driver" : absl::StrFormat("the driver '%s'", device.driver);
  const std::string remedy =
      device.class_code == kNvmePciClass
          ? "tools/nvme-bind " + device.address
          : absl::StrFormat("driverctl set-override %s vfio-pci", device.address);
  return Precondition("PCI device '%s' has %s; give it to vfio-pci with '%s'", device.address, has,
                      remedy);
}

absl::Status GroupInUse(const std::string& address, const std::string& file) {
  const std::optional<pid_t> pid = ProcessWithOpen(file);
  const std::string owner = !pid.has_value()   ? "another process (see 'fuser " + file + "')"
                            : *pid == getpid() ? "this process already"
                                               : absl::StrFormat("process %d", *pid);
  return Precondition(
      "PCI device '%s' is in use: %s has its IOMMU group, %s; one process has a "
      "group, once",
      address, owner, file);
}

absl::Status CannotOpen(int error, const std::string& address, const std::string& file) {
  if (error == EBUSY) return GroupInUse(address, file);
  const std::string what = absl::StrFormat("cannot open '%s' for PCI device '%s'", file, address);
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        ErrnoError(error, what, "as root, 'chown USER " + file + "' permits it to USER").message());
  }
  if (error == ENOENT) {
    return ErrnoError(error, what, "a container needs that file from its host, and /dev/vfio/vfio");
  }
  return ErrnoError(error, what);
}

absl::Status NotViable(const PciSysfs& sysfs, const std::string& address, int group) {
  std::vector<std::string> others;
  for (const PciSysfsDevice& device : sysfs.InGroup(group)) {
    if (device.driver.empty() ||
        std::ranges::find(kHarmlessDrivers, device.driver) != kHarmlessDrivers.end()) {
      continue;
    }
    others.push_back(absl::StrFormat("'%s' (driver %s)", device.address, device.driver));
  }
  if (others.empty()) others.emplace_back("a device that sysfs does not name");
  return Precondition(
      "PCI device '%s' shares IOMMU group %d with %s, and the kernel gives a group only whole; "
      "take the driver from the others, or move the card to another slot",
      address, group, absl::StrJoin(others, ", "));
}

}  // namespace

absl::StatusOr<UniqueFd> OpenVfioGroup(const PciSysfs& sysfs, const std::string& address) {
  RINGSIDE_ASSIGN_OR_RETURN(const PciSysfsDevice device, sysfs.Find(address));
  if (!device.iommu_group.has_value()) return NoIommu(address);
  if (device.driver != kVfioPci) return OtherDriver(device);
  const int group = *device.iommu_group;
  const std::string file = absl::StrFormat("/dev/vfio/%d", group);
  UniqueFd fd(open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return CannotOpen(errno, address, file);
  vfio_group_status status{.argsz = sizeof status, .flags = 0};
  if (ioctl(fd.get(), VFIO_GROUP_GET_STATUS, &status) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot query '%s'", file));
  }
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) return NotViable(sysfs, address, group);
  return fd;
}

}  // namespace ringside
