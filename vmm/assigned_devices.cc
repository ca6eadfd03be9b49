#include "vmm/assigned_devices.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "base/size.h"
#include "base/status.h"
#include "kvm/memory_layout.h"
#include "vfio/pci_sysfs.h"
#include "vfio/vfio_device.h"
#include "vmm/device_ids.h"
#include "vmm/pci_slots.h"

namespace ringside {
namespace {

constexpr uint32_t kBridgeClass = 0x06;

absl::StatusOr<std::unique_ptr<PciDevice>> OpenByVfio(const AssignedConfig& config) {
  // Before vfio/ recommends a driver that takes no bridges.
  RINGSIDE_ASSIGN_OR_RETURN(const PciSysfsDevice device, PciSysfs().Find(config.address));
  if (device.class_code >> 16 == kBridgeClass) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "PCI device '%s' is a bridge, which no guest can be given", config.address));
  }
  return OpenVfioDevice(config.address);
}

bool Reaches(const PciDevice& device, const MemoryRegion& region) {
  const uint64_t last = region.guest_address + (region.size - 1);
  return std::ranges::any_of(device.iova_ranges(), [&](const IovaRange& range) {
    return region.guest_address >= range.first && last <= range.last;
  });
}

absl::Status MapGuestMemory(PciDevice& device, const GuestMemory& memory) {
  for (const MemoryRegion& region : memory.regions()) {
    if (!Reaches(device, region)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the IOMMU does not let PCI device '%s' have the guest's memory at %#x, %s of it; give "
          "the machine less memory",
          device.name(), region.guest_address, FormatSize(region.size)));
    }
    RINGSIDE_RETURN_IF_ERROR(device.MapDma({.host = region.host,
                                            .size = region.size,
                                            .iova = region.guest_address,
                                            .fd = region.fd,
                                            .fd_offset = region.fd_offset}));
  }
  return absl::OkStatus();
}

std::string BarSizes(const PciFunction& function) {
  std::string text;
  for (size_t bar = 0; bar < PciFunction::kBars; ++bar) {
    const uint64_t size = function.bar(bar).size;
    if (size == 0) continue;
    absl::StrAppendFormat(&text, "%sBAR %d of %s", text.empty() ? "" : ", ", bar, FormatSize(size));
  }
  return text;
}

}  // namespace

absl::Status AssignedDevices::Check(std::span<const AssignedConfig> configs,
                                    std::span<const DiskConfig> disks) {
  std::set<std::string> addresses;
  for (const AssignedConfig& config : configs) {
    if (!addresses.insert(config.address).second) {
      return BadInput("PCI device '%s' is passed through twice: a guest has it once",
                      config.address);
    }
  }
  for (size_t i = 0; i < disks.size(); ++i) {
    const BackendDescription disk = disks[i].backend.Describe();
    for (const std::string& address : disk.pci_devices) {
      if (!addresses.contains(address)) continue;
      return BadInput(
          "PCI device '%s' cannot be passed through and be %s too (%s): its namespaces go "
          "with it",
          address, DiskId(disks[i], i), disk.name);
    }
  }
  return absl::OkStatus();
}

absl::Status AssignedDevices::Open(std::span<const AssignedConfig> configs, const Opener& open) {
  for (const AssignedConfig& config : configs) {
    ids_.push_back(AssignedId(config, ids_.size()));
    RINGSIDE_ASSIGN_OR_RETURN(opened_.emplace_back(),
                              open != nullptr ? open(config) : OpenByVfio(config));
  }
  return absl::OkStatus();
}

absl::Status AssignedDevices::Plug(const GuestMemory& memory, PciPlatform& platform,
                                   DeviceMemory& device_memory, PciHost& pci_host) {
  for (std::unique_ptr<PciDevice>& device : std::exchange(opened_, {})) {
    RINGSIDE_ASSIGN_OR_RETURN(
        auto function, AssignedFunction::Create(std::move(device), platform, device_memory, log_));
    RINGSIDE_RETURN_IF_ERROR(MapGuestMemory(function->device(), memory));
    if (const absl::Status added = pci_host.Add(*function, kAssignedSlot); !added.ok()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "PCI device '%s' (%s) finds no place: %s; assign fewer or smaller devices",
          function->device().name(), BarSizes(*function), Message(added)));
    }
    functions_.push_back(std::move(function));
  }
  return absl::OkStatus();
}

absl::Status AssignedDevices::CheckSaved() const {
  if (functions_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "PCI device '%s' of the host is the guest's, and its state cannot be saved; run the machine "
      "without it",
      functions_.front()->device().name()));
}

void AssignedDevices::LeaveBus() {
  for (const auto& function : functions_) function->LeaveBus();
}

void AssignedDevices::Stop() {
  for (const auto& function : functions_) function->Stop();
}

void AssignedDevices::Collect(MachineStatistics& statistics) const {
  for (size_t i = 0; i < functions_.size(); ++i) {
    AssignedFunction& function = *functions_[i];
    statistics.assigned.push_back({.id = ids_[i],
                                   .address = function.device().name(),
                                   .vectors = function.most_vectors(),
                                   .register_exits = function.exits()});
  }
}

}  // namespace ringside
