#include "command/snapshot_command.h"

#include <CLI/CLI.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"
#include "command/exit_codes.h"
#include "command/progress_bar.h"
#include "command/standard_output.h"
#include "vmm/machine_state.h"
#include "vmm/option_type.h"

namespace ringside {
namespace {

constexpr char kHelp[] =
    "Examples:\n"
    "  ringside ctl vm.sock save snap --stop on\n"
    "  ringside snapshot info snap\n"
    "  ringside snapshot verify snap\n"
    "  ringside run --restore snap --disk path=root.img\n"
    "  ringside run --restore snap --restore-handler handler.sock --disk path=root.img\n\n"
    "Exit codes: 0 done, 1 failure at run time, 2 it is no snapshot, or is damaged.";

absl::StatusOr<uint64_t> AllocatedBytes(const UniqueFd& file) {
  struct stat status;
  if (fstat(file.get(), &status) != 0) return ErrnoError(errno, "cannot look at the memory's file");
  return uint64_t{512} * static_cast<uint64_t>(status.st_blocks);
}

absl::StatusOr<Json> Describe(const Snapshot& snapshot) {
  const SavedMachine& state = snapshot.state;
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t allocated, AllocatedBytes(snapshot.memory));
  Json devices = Json::array();
  for (const DevicesState::Function& function : state.devices.functions) {
    devices.push_back(function.name);
  }
  const absl::Time saved = absl::FromUnixNanos(state.saved_at_ns);
  return Json{{"saved", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", saved, absl::UTCTimeZone())},
              {"cpus", state.vcpus.size()},
              {"memory", state.memory.size},
              {"written", allocated},
              {"working_set",
               {{"written_pages", PagesOf(snapshot.working_set.written)},
                {"read_pages", PagesOf(snapshot.working_set.read)}}},
              {"pit", state.vm.pit.has_value()},
              {"devices", devices}};
}

std::string TextOf(const Json& json) {
  std::string devices;
  for (const Json& device : json["devices"]) devices += ' ' + device.get<std::string>();
  const Json& used = json["working_set"];
  return absl::StrFormat(
      "saved    %s\ncpus     %d\nmemory   %s, of which %s are in the file\nused     %d pages are "
      "written and %d read, as far as a working set was recorded\ndevices %s\n",
      json["saved"].get<std::string>(), json["cpus"].get<uint64_t>(),
      FormatSize(json["memory"].get<uint64_t>()), FormatSize(json["written"].get<uint64_t>()),
      used["written_pages"].get<uint64_t>(), used["read_pages"].get<uint64_t>(),
      devices.empty() ? " none" : devices);
}

absl::Status Info(const SnapshotOptions& options) {
  RINGSIDE_ASSIGN_OR_RETURN(const Snapshot snapshot, OpenSnapshot(options.directory));
  RINGSIDE_ASSIGN_OR_RETURN(const Json json, Describe(snapshot));
  return WriteToStdout(options.json ? json.dump(2) + '\n' : TextOf(json));
}

absl::Status Verify(const SnapshotOptions& options) {
  RINGSIDE_ASSIGN_OR_RETURN(const Snapshot snapshot, OpenSnapshot(options.directory));
  {
    ProgressBar bar(STDERR_FILENO);
    bar.Begin("verifying", snapshot.state.memory.size);
    RINGSIDE_RETURN_IF_ERROR(
        VerifyMemoryImage(snapshot.state.memory, snapshot.memory, MemoryPath(options.directory),
                          [&](uint64_t done, uint64_t /*of*/) { bar.At(done); }));
  }
  return WriteToStdout(options.json ? "{\"whole\":true}\n"
                                    : absl::StrFormat("'%s' is whole\n", options.directory));
}

}  // namespace

void AddSnapshotOptions(CLI::App& snapshot, SnapshotOptions& options) {
  snapshot.require_subcommand(1);
  snapshot.footer(kHelp);
  CLI::App* const info = snapshot.add_subcommand("info", "say what was saved, and when");
  CLI::App* const verify = snapshot.add_subcommand(
      "verify", "read all of it, the memory's content too, which a restore does not");
  for (CLI::App* const verb : {info, verify}) {
    verb->add_option("DIR", options.directory, "where 'save' has written it")
        ->required()
        ->type_name("");
    verb->add_flag("--json", options.json, "print JSON");
  }
}

int SnapshotCommand(const CLI::App& snapshot, const SnapshotOptions& options, LogSink& log) {
  const bool verifies = snapshot.get_subcommands().front()->get_name() == "verify";
  return Finish(verifies ? Verify(options) : Info(options), log);
}

}  // namespace ringside
