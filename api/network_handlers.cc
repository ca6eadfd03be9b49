#include "api/api_handlers.h"
#include "api/find_statistics.h"
#include "base/status.h"
#include "vmm/statistics_json.h"

namespace ringside {

absl::StatusOr<Json> ListNetworks(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return ArrayOf(machine->Statistics().networks, NetworkStatisticsJson);
}

absl::StatusOr<Json> GetNetwork(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(
      const NetworkStatistics network,
      FindStatistics(machine->Statistics().networks, given.Text("network"), "network"));
  return NetworkStatisticsJson(network);
}

absl::StatusOr<Json> SetLink(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(
      machine->SetLink(given.Text("network"), given.Switch("up"), given.Time("patience")));
  return Json();
}

}  // namespace ringside
