// The PCI devices of the host that are passed through to a machine's guest.
//
// Threads: as Machine. Ownership: what Plug is given outlives it. Stop comes after the vCPUs have
// stopped and before the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "devices/assigned_function.h"
#include "devices/guest_memory.h"
#include "devices/pci_host.h"
#include "ringside/statistics.h"
#include "vmm/disks.h"

namespace ringside {

class AssignedDevices {
 public:
  // Opens a device; null: the kernel's VFIO does.
  using Opener = std::function<absl::StatusOr<std::unique_ptr<PciDevice>>(const AssignedConfig&)>;

  explicit AssignedDevices(Logger log) : log_(log) {}

  // Before the disks are opened, which may want the same devices: InvalidArgument names two who do.
  static absl::Status Check(std::span<const AssignedConfig> configs,
                            std::span<const DiskConfig> disks);
  // Takes the devices, which resets them.
  absl::Status Open(std::span<const AssignedConfig> configs, const Opener& open);
  // FailedPrecondition if there is any: what it has, only its driver knows.
  absl::Status CheckSaved() const;
  // Maps all of the guest's memory for them, and puts them on the guest's bus in order. Once.
  absl::Status Plug(const GuestMemory& memory, PciPlatform& platform, DeviceMemory& device_memory,
                    PciHost& pci_host);

  // From now on none begins DMA, whatever the guest does. May come before the vCPUs have stopped.
  void LeaveBus();
  // When this returns they do no DMA any more.
  void Stop();
  void Collect(MachineStatistics& statistics) const;

 private:
  const Logger log_;
  std::vector<std::string> ids_;
  std::vector<std::unique_ptr<PciDevice>> opened_;  // until Plug
  std::vector<std::unique_ptr<AssignedFunction>> functions_;
};

}  // namespace ringside
