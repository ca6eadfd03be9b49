// What sysfs says of PCI devices: who drives them, and which of them an IOMMU cannot tell apart.
//
// Threads: any. Each call looks anew: drivers come and go.
// Spec: Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

struct PciSysfsDevice {
  std::string address;             // "0000:00:04.0"
  uint32_t class_code = 0;         // class, subclass, programming interface: 24 bits
  std::string driver;              // empty: none
  std::optional<int> iommu_group;  // none: no IOMMU stands between it and memory
};

class PciSysfs {
 public:
  // `root` is another one in tests.
  explicit PciSysfs(std::filesystem::path root = "/sys") : root_(std::move(root)) {}

  // InvalidArgument if `address` is none, with the full form of a short one; NotFound if no device
  // has it.
  absl::StatusOr<PciSysfsDevice> Find(const std::string& address) const;
  // By address, as the next two.
  std::vector<PciSysfsDevice> OfClass(uint32_t class_code) const;
  std::vector<PciSysfsDevice> OfDriver(const std::string& driver) const;
  // The device itself is one of them.
  std::vector<PciSysfsDevice> InGroup(int group) const;
  // Of an attribute, such as "nvme/nvme0/model", without blanks around it; empty if it cannot be
  // read. The last directory may be "*": the first there is.
  std::string Attribute(const std::string& address, const std::string& name) const;

 private:
  std::filesystem::path DevicePath(const std::string& address) const;
  PciSysfsDevice Read(const std::string& address) const;
  std::vector<std::string> Addresses() const;
  std::vector<PciSysfsDevice> All() const;

  std::filesystem::path root_;
};

}  // namespace ringside
