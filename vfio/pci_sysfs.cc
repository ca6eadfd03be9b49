#include "vfio/pci_sysfs.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/host_files.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

bool IsHex(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char letter) {
    return absl::ascii_isdigit(static_cast<unsigned char>(letter)) ||
           (letter >= 'a' && letter <= 'f');
  });
}

// "00:04.0": bus, device, function.
bool IsShortAddress(std::string_view text) {
  return text.size() == 7 && IsHex(text.substr(0, 2)) && text[2] == ':' &&
         IsHex(text.substr(3, 2)) && text[5] == '.' && text[6] >= '0' && text[6] <= '7';
}

// With a domain before it, of more than four digits where a bridge of the host makes its own.
bool IsAddress(std::string_view text) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && colon >= 4 && colon <= 8 &&
         IsHex(text.substr(0, colon)) && IsShortAddress(text.substr(colon + 1));
}

absl::Status NotAnAddress(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  const std::string full = IsShortAddress(lower) ? "0000:" + lower : lower;
  if (IsAddress(full)) return BadInput("PCI address '%s': write it as '%s'", text, full);
  return BadInput("'%s' is no PCI address; write it like '0000:00:04.0', as 'lspci -D' shows it",
                  text);
}

}  // namespace

absl::StatusOr<PciSysfsDevice> PciSysfs::Find(const std::string& address) const {
  if (!IsAddress(address)) return NotAnAddress(address);
  std::error_code error;
  if (fs::is_directory(DevicePath(address), error)) return Read(address);
  const std::string nearest = Nearest(address, Addresses());
  return absl::NotFoundError(
      absl::StrFormat("there is no PCI device '%s'%s", address,
                      nearest.empty() ? " (none at all)" : "; did you mean '" + nearest + "'?"));
}

std::vector<PciSysfsDevice> PciSysfs::OfClass(uint32_t class_code) const {
  std::vector<PciSysfsDevice> devices = All();
  std::erase_if(devices, [&](const auto& device) { return device.class_code != class_code; });
  return devices;
}

std::vector<PciSysfsDevice> PciSysfs::OfDriver(const std::string& driver) const {
  std::vector<PciSysfsDevice> devices = All();
  std::erase_if(devices, [&](const auto& device) { return device.driver != driver; });
  return devices;
}

std::vector<PciSysfsDevice> PciSysfs::All() const {
  std::vector<PciSysfsDevice> devices;
  for (const std::string& address : Addresses()) devices.push_back(Read(address));
  return devices;
}

std::vector<PciSysfsDevice> PciSysfs::InGroup(int group) const {
  std::vector<PciSysfsDevice> devices;
  const fs::path members = root_ / "kernel/iommu_groups" / absl::StrFormat("%d", group) / "devices";
  for (const std::string& address : NamesIn(members)) devices.push_back(Read(address));
  return devices;
}

std::string PciSysfs::Attribute(const std::string& address, const std::string& name) const {
  fs::path path = DevicePath(address) / name;
  if (path.parent_path().filename() == "*") {
    const fs::path parent = path.parent_path().parent_path();
    const std::vector<std::string> names = NamesIn(parent);
    if (names.empty()) return "";
    path = parent / names.front() / path.filename();
  }
  return FirstLine(path);
}

fs::path PciSysfs::DevicePath(const std::string& address) const {
  return root_ / "bus/pci/devices" / address;
}

PciSysfsDevice PciSysfs::Read(const std::string& address) const {
  const fs::path path = DevicePath(address);
  PciSysfsDevice device{.address = address, .driver = LinkName(path / "driver")};
  if (!absl::SimpleHexAtoi(FirstLine(path / "class"), &device.class_code)) device.class_code = 0;
  int group = 0;
  // What VFIO calls a group without an IOMMU guards nothing.
  if (absl::SimpleAtoi(LinkName(path / "iommu_group"), &group) &&
      FirstLine(path / "iommu_group/name") != "vfio-noiommu") {
    device.iommu_group = group;
  }
  return device;
}

std::vector<std::string> PciSysfs::Addresses() const {
  return NamesIn(root_ / "bus/pci/devices");
}

}  // namespace ringside
