#include "api/api_handlers.h"
#include "api/openapi.h"
#include "base/status.h"
#include "vmm/machine.h"
#include "vmm/statistics_json.h"

namespace ringside {

absl::StatusOr<Json> GetVersion(MachineControl& /*control*/, const ApiArguments& /*given*/) {
  return Json{{"version", RINGSIDE_VERSION}};
}

absl::StatusOr<Json> GetDocument(MachineControl& /*control*/, const ApiArguments& /*given*/) {
  return OpenApiDocument();
}

absl::StatusOr<Json> GetMachine(MachineControl& control, const ApiArguments& /*given*/) {
  const MachineConfig config = control.options().machine;
  return Json{{"state", ControlStateName(control.state())},
              {"kernel", config.kernel},
              {"cpus", config.cpus},
              {"memory", config.memory}};
}

absl::StatusOr<Json> GetConfig(MachineControl& control, const ApiArguments& /*given*/) {
  return PrintOptions(control.options());
}

absl::StatusOr<Json> PutConfig(MachineControl& control, const ApiArguments& given) {
  MachineOptions options;
  RINGSIDE_RETURN_IF_ERROR(ReadOptions(given.Get("body"), options));
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(options));
  RINGSIDE_RETURN_IF_ERROR(control.SetOptions(std::move(options)));
  return Json();
}

absl::StatusOr<Json> StartMachine(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_RETURN_IF_ERROR(control.Start());
  return Json();
}

absl::StatusOr<Json> PauseMachine(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->Pause(given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> ResumeMachine(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  machine->Resume();
  return Json();
}

absl::StatusOr<Json> SaveMachine(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  using AfterSave = Machine::Internals::AfterSave;
  RINGSIDE_RETURN_IF_ERROR(machine->internals().PauseAndSave(
      given.Text("directory"),
      {.difference = given.Switch("difference"), .track = given.Switch("track")},
      [&](uint64_t done, uint64_t of) { given.Report(done, of); },
      given.Switch("stop") ? AfterSave::kStop : AfterSave::kGoOn, given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> RecordWorkingSet(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->RecordWorkingSet());
  return Json();
}

absl::StatusOr<Json> PressPowerButton(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->PressPowerButton());
  return Json();
}

absl::StatusOr<Json> ShutDownMachine(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->ShutDown(given.Time("limit")));
  return Json();
}

absl::StatusOr<Json> StopMachine(MachineControl& control, const ApiArguments& /*given*/) {
  control.Stop();
  return Json();
}

absl::StatusOr<Json> GetStatistics(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return StatisticsJson(machine->Statistics());
}

}  // namespace ringside
