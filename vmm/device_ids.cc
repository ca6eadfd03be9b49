#include "vmm/device_ids.h"

#include "absl/strings/str_format.h"

namespace ringside {

std::string DiskId(const DiskConfig& config, size_t index) {
  return config.id.empty() ? absl::StrFormat("disk%d", index) : config.id;
}

std::string NetworkId(const NetConfig& config, size_t index) {
  return config.id.empty() ? absl::StrFormat("net%d", index) : config.id;
}

std::string VsockId(const VsockConfig& config) {
  return config.id.empty() ? "vsock0" : config.id;
}

std::string AssignedId(const AssignedConfig& config, size_t index) {
  return config.id.empty() ? absl::StrFormat("vfio%d", index) : config.id;
}

}  // namespace ringside
