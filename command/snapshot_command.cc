#include "command/snapshot_command.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "base/printable.h"
#include "base/size.h"
#include "base/status.h"
#include "command/exit_codes.h"
#include "command/progress_bar.h"
#include "command/standard_output.h"
#include "ringside/snapshot_merge.h"
#include "vmm/json_text.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

constexpr char kHelp[] =
    "Examples:\n"
    "  ringside ctl vm.sock save snap --stop on\n"
    "  ringside snapshot info snap\n"
    "  ringside snapshot verify snap\n"
    "  ringside run --restore snap --disk path=root.img\n"
    "  ringside snapshot merge snap snap.1 snap.2 --to whole\n"
    "  ringside run --restore snap --restore-handler handler.sock --disk path=root.img\n\n"
    "Exit codes: 0 done, 1 failure at run time, 2 it is no snapshot, or is damaged.";

absl::StatusOr<uint64_t> AllocatedBytes(const UniqueFd& file) {
  struct stat status;
  if (fstat(file.get(), &status) != 0) return ErrnoError(errno, "cannot look at the memory's file");
  return uint64_t{512} * static_cast<uint64_t>(status.st_blocks);
}

std::string Hex(const SnapshotIdentity& identity) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(identity.data()), identity.size()});
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
              {"identity", Hex(state.memory.identity)},
              {"difference", state.difference.has_value()
                                 ? Json{{"pages", PagesOf(state.difference->pages)},
                                        {"to", Hex(state.difference->base)}}
                                 : Json()},
              {"working_set",
               {{"written_pages", PagesOf(snapshot.working_set.written)},
                {"read_pages", PagesOf(snapshot.working_set.read)}}},
              {"pit", state.vm.pit.has_value()},
              {"devices", devices}};
}

std::string TextOf(const Json& json) {
  std::string devices, whole = "is whole";
  for (const Json& device : json["devices"]) devices += ' ' + Printable(device.get<std::string>());
  if (const Json& difference = json["difference"]; !difference.is_null()) {
    whole =
        absl::StrFormat("is a difference of %d pages to %s", difference["pages"].get<uint64_t>(),
                        difference["to"].get<std::string>());
  }
  const Json& used = json["working_set"];
  return absl::StrFormat(
      "saved    %s\nidentity %s, which %s\ncpus     %d\nmemory   %s, of which %s are in the "
      "file\nused     %d pages are written and %d read, as far as a working set was recorded\n"
      "devices %s\n",
      json["saved"].get<std::string>(), json["identity"].get<std::string>(), whole,
      json["cpus"].get<uint64_t>(), FormatSize(json["memory"].get<uint64_t>()),
      FormatSize(json["written"].get<uint64_t>()), used["written_pages"].get<uint64_t>(),
      used["read_pages"].get<uint64_t>(), devices.empty() ? " none" : devices);
}

absl::Status Info(const SnapshotOptions& options) {
  RINGSIDE_ASSIGN_OR_RETURN(const Snapshot snapshot, OpenAnySnapshot(options.directories.front()));
  RINGSIDE_RETURN_IF_ERROR(snapshot.working_set_status);
  RINGSIDE_ASSIGN_OR_RETURN(const Json json, Describe(snapshot));
  return WriteToStdout(options.json ? JsonDocument(json) : TextOf(json));
}

absl::Status Verify(const SnapshotOptions& options) {
  RINGSIDE_ASSIGN_OR_RETURN(const Snapshot snapshot, OpenAnySnapshot(options.directories.front()));
  RINGSIDE_RETURN_IF_ERROR(snapshot.working_set_status);
  const MemoryImage image = FileImage(snapshot.state);
  {
    ProgressBar bar(STDERR_FILENO);
    bar.Begin("verifying", image.size);
    RINGSIDE_RETURN_IF_ERROR(
        VerifyMemoryImage(image, snapshot.memory, snapshot.path,
                          [&](uint64_t done, uint64_t /*of*/) { bar.At(done); }));
  }
  return WriteToStdout(options.json
                           ? "{\"whole\":true}\n"
                           : absl::StrFormat("'%s' is whole\n", options.directories.front()));
}

// A bar for each snapshot that is read, and one for the one that is written.
class Bars {
 public:
  std::function<void(uint64_t, uint64_t)> Of(const char* what) {
    return [this, what](uint64_t done, uint64_t of) {
      if (what != what_ || of != of_ || done < done_) {
        bar_.Begin(what, of);
      }
      what_ = what;
      of_ = of;
      done_ = done;
      bar_.At(done);
    };
  }

 private:
  ProgressBar bar_{STDERR_FILENO};
  const char* what_ = nullptr;
  uint64_t of_ = 0, done_ = 0;
};

absl::Status Merge(const SnapshotOptions& options) {
  {
    Bars bars;
    RINGSIDE_RETURN_IF_ERROR(
        MergeSnapshots(options.directories, options.to,
                       {.verifying = bars.Of("verifying"), .merging = bars.Of("merging")}));
  }
  return WriteToStdout(options.json ? "{\"merged\":true}\n"
                                    : absl::StrFormat("merged into '%s'\n", options.to));
}

}  // namespace

void AddSnapshotOptions(CLI::App& snapshot, SnapshotOptions& options) {
  snapshot.require_subcommand(1);
  snapshot.footer(kHelp);
  CLI::App* const info = snapshot.add_subcommand("info", "say what was saved, and when");
  CLI::App* const verify = snapshot.add_subcommand(
      "verify", "read all of it, the memory's content too, which a restore does not");
  CLI::App* const merge = snapshot.add_subcommand(
      "merge", "make one of a whole snapshot and the differences that follow it");
  for (CLI::App* const verb : {info, verify, merge}) {
    CLI::Option* const directories =
        verb->add_option("DIR", options.directories, "where 'save' has written it")
            ->required()
            ->type_name("");
    if (verb != merge) directories->expected(1);
    verb->add_flag("--json", options.json, "print JSON");
  }
  merge->add_option("--to", options.to, "the directory to write; the others stay as they are")
      ->required()
      ->type_name("DIR");
}

int SnapshotCommand(const CLI::App& snapshot, const SnapshotOptions& options, LogSink& log) {
  const std::string verb = snapshot.get_subcommands().front()->get_name();
  if (verb == "merge") return Finish(Merge(options), log);
  return Finish(verb == "verify" ? Verify(options) : Info(options), log);
}

}  // namespace ringside
