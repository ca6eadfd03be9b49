#include "api/api_handlers.h"
#include "api/find_statistics.h"
#include "base/status.h"
#include "vmm/statistics_json.h"
#include "vmm/throttle_options.h"

namespace ringside {
namespace {

const char* const kId = "id";

// What is not given stays as it is. Of two clients that do this at the same moment, one may undo
// what the other has changed.
ThrottleLimits Changed(const ThrottleLimits& limits, const ApiArguments& given) {
  ThrottleGroupConfig group = {.limits = limits};
  for (const Option<ThrottleGroupConfig>& option : ThrottleGroupOptions().options) {
    const char* const name = option.spec().name;
    if (name != std::string(kId) && given.Has(name)) option.Set(given.Get(name), group);
  }
  return group.limits;
}

// The machine says what it has, should there be none of this name.
template <typename Thing>
const Thing* FindById(const std::vector<Thing>& all, const std::string& id) {
  for (const Thing& one : all) {
    if (one.id == id) return &one;
  }
  return nullptr;
}

}  // namespace

std::vector<ApiField> ThrottleFields() {
  std::vector<ApiField> fields;
  for (const Option<ThrottleGroupConfig>& option : ThrottleGroupOptions().options) {
    if (option.spec().name == std::string(kId)) continue;
    fields.push_back({.spec = option.spec()});
    fields.back().spec.type.least = 0;  // which lifts a limit
  }
  return fields;
}

absl::StatusOr<Json> SetThrottle(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  const MachineStatistics now = machine->Statistics();
  const DiskStatistics* const disk = FindById(now.disks, given.Text("disk"));
  RINGSIDE_RETURN_IF_ERROR(machine->SetThrottle(
      given.Text("disk"), Changed(disk != nullptr ? disk->throttle : ThrottleLimits(), given)));
  return Json();
}

absl::StatusOr<Json> SetNetworkThrottle(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  const MachineStatistics now = machine->Statistics();
  RINGSIDE_ASSIGN_OR_RETURN(const NetworkStatistics network,
                            FindStatistics(now.networks, given.Text("network"), "network"));
  RINGSIDE_RETURN_IF_ERROR(machine->SetThrottle(network.id, Changed(network.throttle, given)));
  return Json();
}

absl::StatusOr<Json> ListThrottleGroups(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return ArrayOf(machine->Statistics().throttle_groups, ThrottleGroupJson);
}

absl::StatusOr<Json> SetGroupThrottle(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  const MachineStatistics now = machine->Statistics();
  const ThrottleGroupConfig* const group = FindById(now.throttle_groups, given.Text("group"));
  RINGSIDE_RETURN_IF_ERROR(machine->SetGroupThrottle(
      given.Text("group"), Changed(group != nullptr ? group->limits : ThrottleLimits(), given)));
  return Json();
}

}  // namespace ringside
