#include "vfio/vfio_device.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<PciDevice>> OpenVfioDevice(const std::string& address) {
  return absl::UnimplementedError(address);
}

}  // namespace ringside
