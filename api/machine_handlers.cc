#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "api/api_handlers.h"
#include "api/openapi.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"
#include "vmm/machine.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

absl::StatusOr<MachineOptions> ReadAll(const Json& body) {
  MachineOptions options;
  RINGSIDE_RETURN_IF_ERROR(ReadOptions(body, options));
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(options));
  return options;
}

// What a disk's path is the host is asked, and nobody can call that off where it is a file server
// that has gone. So a thread that shares nothing with anybody asks, and is left behind if need be:
// the machine's end waits for this call.
absl::StatusOr<MachineOptions> ReadOptionsInTime(const Json& body) {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  constexpr int kMostLeftBehind = 8;
  static std::atomic<int> under_way{0};
  struct Reading {
    Json body;
    absl::StatusOr<MachineOptions> options;
    Event is_over;
  };
  if (under_way.fetch_add(1) >= kMostLeftBehind) {
    under_way.fetch_sub(1);
    return absl::ResourceExhaustedError(
        "paths of earlier configurations are still not answered for: see that the servers of their "
        "file systems run");
  }
  const auto reading = std::make_shared<Reading>();
  reading->body = body;
  absl::StatusOr<std::thread> thread = StartThread("config", [reading] {
    reading->options = ReadAll(reading->body);
    under_way.fetch_sub(1);
    reading->is_over.Notify();
  });
  if (!thread.ok()) {
    under_way.fetch_sub(1);
    return thread.status();
  }
  thread->detach();
  if (reading->is_over.WaitFor(kPatience)) return std::move(reading->options);
  return absl::DeadlineExceededError(
      "what a disk's path is was not answered within 5 s: see that the server of its file system "
      "runs, or give the disk's type");
}

}  // namespace

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
  RINGSIDE_RETURN_IF_ERROR(control.CheckMayChange());  // before any path is looked at
  RINGSIDE_ASSIGN_OR_RETURN(MachineOptions options, ReadOptionsInTime(given.Get("body")));
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
