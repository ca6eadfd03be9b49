#include <array>

#include "api/api_handlers.h"
#include "base/nearest.h"
#include "base/status.h"
#include "vmm/explanation_json.h"
#include "vmm/io_thread_options.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

// Of the options of an I/O thread those that say how it polls, which may change while it runs.
constexpr std::array kPollNames = {"poll", "max", "grow", "shrink", "weight", "price", "cpu-max"};

absl::StatusOr<IoThreadStatistics> Find(Machine& machine, const std::string& id) {
  std::vector<std::string> ids;
  for (IoThreadStatistics& thread : machine.Statistics().io_threads) {
    if (thread.id == id) return std::move(thread);
    ids.push_back(thread.id);
  }
  if (ids.empty()) return absl::NotFoundError("the machine has no I/O threads");
  return absl::NotFoundError(
      absl::StrFormat("there is no I/O thread '%s': did you mean '%s'?", id, Nearest(id, ids)));
}

// Those that were given, in a configuration.
void Fill(const ApiArguments& given, IoThreadConfig& config) {
  for (const Option<IoThreadConfig>& option : IoThreadOptions().options) {
    if (given.Has(option.spec().name)) option.Set(given.Get(option.spec().name), config);
  }
}

}  // namespace

std::vector<ApiField> IoThreadFields() {
  std::vector<ApiField> fields;
  const IoThreadConfig defaults;
  for (const Option<IoThreadConfig>& option : IoThreadOptions().options) {
    fields.push_back({.spec = option.spec(), .unset = option.Get(defaults)});
  }
  return fields;
}

std::vector<ApiField> PollFields() {
  std::vector<ApiField> fields;
  fields.reserve(std::size(kPollNames));
  for (const char* name : kPollNames) {
    fields.push_back({.spec = IoThreadOptions().Find(name)->spec()});
  }
  return fields;
}

absl::StatusOr<Json> ListIoThreads(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return ArrayOf(machine->Statistics().io_threads, IoThreadStatisticsJson);
}

absl::StatusOr<Json> GetIoThread(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreadStatistics thread,
                            Find(*machine, given.Text("iothread")));
  return IoThreadStatisticsJson(thread);
}

absl::StatusOr<Json> AddIoThread(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  IoThreadConfig config;
  Fill(given, config);
  RINGSIDE_ASSIGN_OR_RETURN(const std::string id, machine->AddIoThread(config));
  return Json{{"id", id}};
}

// What is not given stays as it is. Of two clients that do this at the same moment, one may undo
// what the other has changed.
absl::StatusOr<Json> ChangeIoThread(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  const std::string id = given.Text("iothread");
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreadStatistics thread, Find(*machine, id));
  IoThreadConfig config = {.tuning = {.poll = thread.poll}};
  Fill(given, config);
  RINGSIDE_RETURN_IF_ERROR(machine->SetPoll(id, config.tuning.poll, given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> RemoveIoThread(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->RemoveIoThread(given.Text("iothread"), given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> ExplainIoThread(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreadStatistics thread,
                            Find(*machine, given.Text("iothread")));
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThreadExplanation> explanations,
                            machine->Explain(given.Time("patience")));
  const IoThreadExplanation* const explanation = FindExplanation(thread.id, explanations);
  if (explanation != nullptr) return ExplanationJson(thread, *explanation);
  return absl::NotFoundError(absl::StrFormat("I/O thread '%s' has gone meanwhile", thread.id));
}

}  // namespace ringside
