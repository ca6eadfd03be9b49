#include "faults/fault_device.h"

#include "base/clock.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<BlockDevice>> FaultConfig::Open(const BlockContext& context) const {
  RINGSIDE_ASSIGN_OR_RETURN(FaultScript script_read, ReadFaultScript(script));
  const BackendDescription description = backend.Describe();
  if (!description.takes_any_memory && FaultPlan(script_read, 0).has_cut()) {
    return BadInput(
        "fault script '%s': a cut cannot be had on '%s', which transfers guest memory only: use a "
        "file, or the kernel's driver",
        script, description.name);
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto below, backend.Open(context));
  context.log.Log(Severity::kWarning, "disk '%s': it has faults, as '%s' says, with seed=%d",
                  description.name, script, script_read.seed);
  return std::make_unique<FaultDevice>(std::move(below), std::move(script_read), description.name,
                                       context.log);
}

FaultDevice::FaultDevice(std::unique_ptr<BlockDevice> below, FaultScript script, std::string name,
                         Logger logger)
    : BlockFilter(std::move(below)),
      state_(std::move(script), MonotonicNs(), std::move(name), info(), logger) {}

BlockStatistics FaultDevice::Statistics() const {
  return StatisticsWith(counters_.Sums());
}

absl::StatusOr<std::unique_ptr<BlockChannel>> FaultDevice::Open(IoThread& io_thread) {
  RINGSIDE_ASSIGN_OR_RETURN(auto channel, below().Open(io_thread));
  return std::make_unique<FaultChannel>(io_thread, std::move(channel), state_, counters_.Take());
}

}  // namespace ringside
