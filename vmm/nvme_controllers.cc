#include "vmm/nvme_controllers.h"

#include "base/status.h"
#include "vfio/vfio_device.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

bool IsSocket(const std::string& address) {
  return address.starts_with('/');
}

absl::StatusOr<std::unique_ptr<PciDevice>> OpenDevice(const std::string& address, Logger log) {
  return IsSocket(address) ? OpenVfioUserDevice(address, {.log = log}) : OpenVfioDevice(address);
}

}  // namespace

std::string NvmeName(const NvmeConfig& config) {
  return absl::StrFormat("nvme%s://%s/%d", IsSocket(config.address) ? "+user" : "", config.address,
                         config.namespace_id);
}

absl::Status NvmeControllers::Announce(const std::string& disk, const NvmeConfig& config,
                                       std::optional<absl::Duration> timeout) {
  Controller& controller = controllers_[config.address];
  const auto [other, is_first] = controller.disks.try_emplace(config.namespace_id, disk);
  if (!is_first) {
    return BadInput("%s and %s are both %s; a namespace can be one disk only", other->second, disk,
                    NvmeName(config));
  }
  if (!timeout) return absl::OkStatus();
  if (*timeout < kMinNvmeTimeout || *timeout > kMaxNvmeTimeout) {
    return BadInput("disk '%s': a time-out of %s cannot be; give %s to %s", NvmeName(config),
                    absl::FormatDuration(*timeout), absl::FormatDuration(kMinNvmeTimeout),
                    absl::FormatDuration(kMaxNvmeTimeout));
  }
  if (controller.timeout && *controller.timeout != *timeout) {
    return BadInput("%s and %s give NVMe controller '%s' time-outs of %s and %s; give one",
                    controller.timeout_of, disk, config.address,
                    absl::FormatDuration(*controller.timeout), absl::FormatDuration(*timeout));
  }
  if (!controller.timeout) controller.timeout_of = disk;
  controller.timeout = timeout;
  return absl::OkStatus();
}

NvmeSettings NvmeControllers::SettingsOf(const std::string& address) const {
  NvmeSettings settings;
  settings.timeout = controllers_.at(address).timeout.value_or(settings.timeout);
  return settings;
}

absl::StatusOr<std::unique_ptr<NvmeDevice>> NvmeControllers::Open(const NvmeConfig& config) {
  std::shared_ptr<NvmeController>& opened = controllers_.at(config.address).opened;
  if (opened == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<PciDevice> device,
                              OpenDevice(config.address, log_));
    RINGSIDE_ASSIGN_OR_RETURN(
        opened, CreateNvmeController(std::move(device), SettingsOf(config.address), log_));
  }
  return NvmeDevice::Create(opened, config);
}

}  // namespace ringside
