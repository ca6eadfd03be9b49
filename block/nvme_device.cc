#include "block/nvme_device.h"

namespace ringside {

class NvmeController {};

absl::StatusOr<std::shared_ptr<NvmeController>> CreateNvmeController(
    std::unique_ptr<PciDevice> device, const NvmeSettings&, Logger) {
  return absl::UnimplementedError(device->name());
}

absl::StatusOr<std::unique_ptr<NvmeDevice>> NvmeDevice::Create(std::shared_ptr<NvmeController>,
                                                               const NvmeConfig& config) {
  return absl::UnimplementedError(config.address);
}

NvmeDevice::~NvmeDevice() = default;

absl::Status NvmeDevice::MapMemory(std::span<const MemoryRegion>) {
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockChannel>> NvmeDevice::Open(IoThread&) {
  return absl::UnimplementedError("nvme");
}

NvmeStatistics NvmeDevice::statistics() const {
  return {};
}

}  // namespace ringside
