#include "vmm/own_devices.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "devices/own_device.h"

namespace ringside {
namespace {

std::string NameOf(const DeviceConfig& config) {
  return absl::StrFormat("device '%s'", config.id);
}

}  // namespace

absl::Status CheckOwnDevice(const DeviceConfig& config, const IoThreads& io_threads) {
  if (!config.create) {
    return BadInput("device '%s' has nothing that makes it; set DeviceConfig::create", config.id);
  }
  for (const std::string& name : config.io_threads) {
    RINGSIDE_RETURN_IF_ERROR(Of(NameOf(config), io_threads.CheckName(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VirtioDevice>> MakeOwnDevice(const DeviceConfig& config,
                                                            const DeviceContext& context) {
  std::vector<std::string> names = config.io_threads;
  if (names.empty()) names = {context.io_threads.Usual(0)};
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThread*> io_threads,
                            context.io_threads.FindOrFirst(names));
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, config.create());
  if (device == nullptr) {
    return BadInput("device '%s' is null; DeviceConfig::create returns a device or an error",
                    config.id);
  }
  RINGSIDE_RETURN_IF_ERROR(Of(NameOf(config), OwnDevice::Check(*device)));
  return std::make_unique<OwnDevice>(std::move(device), context.memory, io_threads,
                                     config.trace_latency);
}

}  // namespace ringside
