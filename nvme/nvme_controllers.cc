#include "nvme/nvme_controllers.h"

#include "base/status.h"
#include "nvme/nvme_url.h"
#include "vfio/vfio_device.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

const std::string& AddressOrSocket(const NvmeConfig& config) {
  return config.socket.empty() ? config.address : config.socket;
}

// Its namespaces' URL without their number.
std::string ControllerName(const NvmeConfig& config) {
  const std::string url = NvmeUrl(config);
  return url.substr(0, url.rfind('/'));
}

struct NvmeFunctions {
  static BackendDescription Describe(const NvmeConfig& config) {
    BackendDescription description = {.name = NvmeUrl(config), .takes_any_memory = false};
    if (config.socket.empty()) description.pci_devices = {config.address};
    return description;
  }
  static absl::Status Announce(const NvmeConfig& config, const std::string& disk,
                               const BlockContext& context) {
    return context.nvme.Announce(disk, config);
  }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const NvmeConfig& config,
                                                           const BlockContext& context) {
    return context.nvme.Open(config);
  }
};

}  // namespace

BlockBackend::BlockBackend(NvmeConfig config)
    : config_(std::move(config)), calls_(&kBackendCalls<NvmeConfig, NvmeFunctions>) {}

absl::Status NvmeControllers::Announce(const std::string& disk, const NvmeConfig& config) {
  if (config.address.empty() == config.socket.empty()) {
    return BadInput("%s has PCI address '%s' and socket '%s'; give one of them", disk,
                    config.address, config.socket);
  }
  Controller& controller = controllers_[ControllerName(config)];
  const std::string name = NvmeUrl(config);
  const auto [other, is_first] = controller.disks.try_emplace(config.namespace_id, disk);
  if (!is_first) {
    return BadInput("%s and %s are both %s; a namespace can be one disk only", other->second, disk,
                    name);
  }
  const std::optional<absl::Duration> timeout = config.timeout;
  if (!timeout) return absl::OkStatus();
  if (*timeout < kMinNvmeTimeout || *timeout > kMaxNvmeTimeout) {
    return BadInput("disk '%s': timeout=%s is out of range: give %s to %s", name,
                    absl::FormatDuration(*timeout), absl::FormatDuration(kMinNvmeTimeout),
                    absl::FormatDuration(kMaxNvmeTimeout));
  }
  if (controller.timeout && *controller.timeout != *timeout) {
    return BadInput("%s and %s give NVMe controller '%s' time-outs of %s and %s; give one",
                    controller.timeout_of, disk, AddressOrSocket(config),
                    absl::FormatDuration(*controller.timeout), absl::FormatDuration(*timeout));
  }
  if (!controller.timeout) controller.timeout_of = disk;
  controller.timeout = timeout;
  return absl::OkStatus();
}

NvmeSettings NvmeControllers::SettingsOf(const NvmeConfig& config) const {
  NvmeSettings settings;
  settings.timeout = controllers_.at(ControllerName(config)).timeout.value_or(settings.timeout);
  return settings;
}

absl::StatusOr<std::unique_ptr<NvmeDevice>> NvmeControllers::Open(const NvmeConfig& config) {
  std::shared_ptr<NvmeController>& opened = controllers_.at(ControllerName(config)).opened;
  if (opened == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, config.socket.empty()
                                               ? OpenVfioDevice(config.address)
                                               : OpenVfioUserDevice(config.socket, {.log = log_}));
    RINGSIDE_ASSIGN_OR_RETURN(opened,
                              CreateNvmeController(std::move(device), SettingsOf(config), log_));
  }
  return NvmeDevice::Create(opened, config);
}

}  // namespace ringside
