#include "faults/disk_filters.h"

#include "faults/fault_device.h"
#include "faults/record_device.h"

namespace ringside {
namespace {

BlockBackend Recorded(BlockBackend backend, const RecordOptions& options) {
  if (options.path.empty()) return backend;
  return RecordConfig{.backend = std::move(backend), .options = options};
}

}  // namespace

BlockBackend WithFilters(const DiskConfig& disk) {
  BlockBackend backend = disk.backend;
  auto* const overlay = backend.As<OverlayConfig>();
  if (overlay != nullptr && disk.record.below_faults) {
    overlay->record = disk.record;
  } else if (disk.record.below_faults) {
    backend = Recorded(std::move(backend), disk.record);
  }
  if (!disk.fault_script.empty()) {
    backend = FaultConfig{.backend = std::move(backend), .script = disk.fault_script};
  }
  if (!disk.record.below_faults) backend = Recorded(std::move(backend), disk.record);
  return backend;
}

}  // namespace ringside
