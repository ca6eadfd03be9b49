// A sysfs of a test's own, with the PCI devices it is told.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/directories.h"

namespace ringside::testing {

class FakeSysfs {
 public:
  std::filesystem::path root() const { return directory_.path(); }

  // `driver` empty: none. `group` negative: no IOMMU.
  void AddDevice(const std::string& address, const std::string& class_code,
                 const std::string& driver, int group) {
    const std::filesystem::path device = DevicePath(address);
    create_directories(device);
    Write(device / "class", class_code + "\n");
    if (!driver.empty()) {
      const std::filesystem::path target = root() / "bus/pci/drivers" / driver;
      create_directories(target);
      create_directory_symlink(target, device / "driver");
    }
    if (group < 0) return;
    const std::filesystem::path target = root() / "kernel/iommu_groups" / std::to_string(group);
    create_directories(target / "devices");
    create_directory_symlink(target, device / "iommu_group");
    create_directory_symlink(device, target / "devices" / address);
  }

  void Write(const std::filesystem::path& path, const std::string& text) const {
    create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::filesystem::path DevicePath(const std::string& address) const {
    return root() / "bus/pci/devices" / address;
  }

 private:
  TempDirectory directory_;
};

}  // namespace ringside::testing
