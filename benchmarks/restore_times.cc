// How long a restore takes in one process, to the first byte that the guest says: by the library,
// of a directory or of a template that has been read before, and at the least (bare_restore.h). And
// how long a save takes. Does what tools/compare restore asks of it, a line each, so that the ways
// come in turns:
//
//   restore_times --kernel guest.elf
//   make DIR MEMORY          saves a machine of so many MiB, whose guest is at work, into DIR
//   bare DIR, library DIR, fork DIR
//                            goes on from that: {"ns": N}
//   save DIR MEMORY WRITTEN  saves one into DIR whose guest has written to so many MiB
//   make-keeper DIR MEMORY   as make, with a guest that keeps a number that it is told
//   hold DIR bare|fork|pool TIMES
//                            goes on from that, and keeps the machine, with I/O threads of its own
//                            or of a pool; of all but the last of TIMES it ends it first:
//                            {"ns": [N, ...]}
//   keep DIR NUMBER          holds a fork that keeps this number
//   recall                   has all of those say theirs: {"wrong": N}
//   make-toucher DIR MEMORY PAGES  as make, with a guest that writes to so many pages once told to
//   touch DIR on|off|record  goes on from that, with its working set or without, and tells it to:
//                            {"ns": N of the guest's, "all_ns": N from before it was made}
//   drop                     ends all that are held: {"ns": N}
//
// Each is answered by a line of JSON; where it failed that has an "error".
#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "benchmarks/bare_restore.h"
#include "benchmarks/held_machines.h"
#include "command/exit_codes.h"
#include "ringside/machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using nlohmann::json;

constexpr absl::Duration kPatience = absl::Seconds(20);

// What a guest does (tests/guest/main.cc), and says when it has begun with it.
struct Work {
  std::string command_line, begins;
};
Work Beating(uint64_t written_mib) {
  return {absl::StrFormat("beat=20 written=%d", written_mib), "guest: beats\n."};
}
Work Touching(uint64_t pages) {
  return {absl::StrFormat("touch=%d", pages), "guest: touches\n"};
}
Work Keeping(uint64_t /*number*/) {
  return {"keep=1", "guest: keeps\n"};
}

bool HasSaid(const UniqueFd& output, std::string_view text) {
  std::string said(static_cast<size_t>(lseek(output.get(), 0, SEEK_END)), '\0');
  const ssize_t got = pread(output.get(), said.data(), said.size(), 0);
  return got > 0 && said.find(text) != std::string::npos;
}

// A machine whose guest says a byte every so often, when it has begun with that.
absl::StatusOr<std::unique_ptr<Machine>> Begin(const std::string& kernel, uint64_t memory_mib,
                                               const Work& work, const UniqueFd& output) {
  MachineConfig config;
  config.kernel = kernel;
  config.memory = memory_mib << 20;
  config.command_line = work.command_line;
  config.console.output_fd = output.get();
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<Machine> machine, Machine::Create(config));
  RINGSIDE_RETURN_IF_ERROR(machine->Start());
  const absl::Time deadline = absl::Now() + kPatience;
  while (!HasSaid(output, work.begins)) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the guest does not come up");
    absl::SleepFor(absl::Milliseconds(1));
  }
  return machine;
}

// What the guest does may depend on a last word.
absl::StatusOr<json> Make(const std::string& kernel, Work (*work_of)(uint64_t number),
                          std::istream& words) {
  std::string directory;
  uint64_t memory_mib = 0, number = 0;
  words >> directory >> memory_mib >> number;
  const Work work = work_of(number);
  const UniqueFd output(memfd_create("console", MFD_CLOEXEC));
  RINGSIDE_ASSIGN_OR_RETURN(const auto machine, Begin(kernel, memory_mib, work, output));
  RINGSIDE_RETURN_IF_ERROR(machine->Pause(kPatience));
  RINGSIDE_RETURN_IF_ERROR(machine->Save(directory));
  return json::object();
}

// Of a save, the memory's copying apart from what comes before it, which is all other state, and
// from what comes behind it, which is that all of it reaches the disk.
absl::StatusOr<json> Save(const std::string& kernel, std::istream& words) {
  std::string directory;
  uint64_t memory_mib = 0, written_mib = 0;
  words >> directory >> memory_mib >> written_mib;
  const UniqueFd output(memfd_create("console", MFD_CLOEXEC));
  RINGSIDE_ASSIGN_OR_RETURN(const auto machine,
                            Begin(kernel, memory_mib, Beating(written_mib), output));
  const int64_t asked = MonotonicNs();
  RINGSIDE_RETURN_IF_ERROR(machine->Pause(kPatience));
  const int64_t paused = MonotonicNs();
  int64_t copies = 0, copied = 0;
  RINGSIDE_RETURN_IF_ERROR(machine->Save(directory, {}, [&](uint64_t, uint64_t) {
    copied = MonotonicNs();
    if (copies == 0) copies = copied;
  }));
  const int64_t saved = MonotonicNs();
  machine->Resume();
  const int64_t resumed = MonotonicNs();
  return json{{"pause_ns", paused - asked},
              {"paused_ns", resumed - paused},
              {"state_ns", copies - paused},
              {"copy_ns", copied - copies},
              {"disk_ns", saved - copied}};
}

// Its console is a pipe, for whose first byte this thread waits.
absl::StatusOr<int64_t> TimeOf(MachineConfig config) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "cannot make a pipe");
  const UniqueFd reader(ends[0]), writer(ends[1]);
  config.console.output_fd = writer.get();
  const int64_t begin = MonotonicNs();
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, Machine::Create(config));
  RINGSIDE_RETURN_IF_ERROR(machine->Start());
  if (!testing::WaitForFd(reader.get(), POLLIN, kPatience)) {
    return absl::DeadlineExceededError("the guest does not speak");
  }
  return MonotonicNs() - begin;
}

absl::StatusOr<int64_t> RestoreByLibrary(const std::string& directory) {
  MachineConfig config;
  config.restore = directory;
  return TimeOf(std::move(config));
}

using Template = std::shared_ptr<const MachineTemplate>;
absl::StatusOr<Template> TemplateOf(const std::string& directory) {
  static std::map<std::string, Template> templates;
  Template& from = templates[directory];
  if (from == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(from, MachineTemplate::Load(directory));
  }
  return from;
}

absl::StatusOr<int64_t> Fork(const std::string& directory) {
  MachineConfig config;
  RINGSIDE_ASSIGN_OR_RETURN(config.from, TemplateOf(directory));
  return TimeOf(std::move(config));
}

// By the directory they are of.
std::map<std::string, HeldMachines> held;
absl::StatusOr<HeldMachines*> HeldOf(const std::string& directory) {
  RINGSIDE_ASSIGN_OR_RETURN(const Template from, TemplateOf(directory));
  return &held.try_emplace(directory, from).first->second;
}

absl::StatusOr<int64_t> Add(HeldMachines& machines, const std::string& way) {
  if (way == "bare") return machines.AddBare();
  return way == "pool" ? machines.AddPooledFork() : machines.AddFork();
}

absl::StatusOr<json> Hold(const std::string& directory, std::istream& words) {
  std::string way;
  uint64_t times = 0;
  words >> way >> times;
  RINGSIDE_ASSIGN_OR_RETURN(HeldMachines* const machines, HeldOf(directory));
  std::vector<int64_t> all;
  for (uint64_t i = 0; i < times; ++i) {
    if (i > 0) machines->DropLast();
    RINGSIDE_ASSIGN_OR_RETURN(const int64_t ns, Add(*machines, way));
    all.push_back(ns);
  }
  return json{{"ns", all}};
}

absl::StatusOr<json> Keep(const std::string& directory, std::istream& words) {
  uint64_t number = 0;
  words >> number;
  RINGSIDE_ASSIGN_OR_RETURN(HeldMachines* const machines, HeldOf(directory));
  RINGSIDE_RETURN_IF_ERROR(machines->AddThatKeeps(number));
  return json::object();
}

absl::StatusOr<json> Touch(const std::string& directory, std::istream& words) {
  std::string how;
  words >> how;
  MachineConfig config;
  config.restore = directory;
  config.restore_working_set = how == "on";
  RINGSIDE_ASSIGN_OR_RETURN(const TouchTimes times, TouchPages(config, how == "record"));
  return json{{"ns", times.guest_ns}, {"all_ns", times.all_ns}};
}

absl::StatusOr<json> Recall() {
  uint64_t wrong = 0;
  for (auto& [directory, machines] : held) {
    RINGSIDE_ASSIGN_OR_RETURN(const uint64_t of_these, machines.Recall());
    wrong += of_these;
  }
  return json{{"wrong", wrong}};
}

json Drop() {
  int64_t ns = 0;
  for (auto& [directory, machines] : held) ns += machines.Drop();
  return json{{"ns", ns}};
}

absl::StatusOr<json> Do(const std::string& line, const std::string& kernel) {
  std::istringstream words(line);
  std::string what, directory;
  words >> what;
  if (what == "make") return Make(kernel, Beating, words);
  if (what == "make-keeper") return Make(kernel, Keeping, words);
  if (what == "make-toucher") return Make(kernel, Touching, words);
  if (what == "save") return Save(kernel, words);
  if (what == "recall") return Recall();
  if (what == "drop") return Drop();
  words >> directory;
  if (what == "hold") return Hold(directory, words);
  if (what == "keep") return Keep(directory, words);
  if (what == "touch") return Touch(directory, words);
  absl::StatusOr<int64_t> ns = BadInput("'%s' is unknown", what);
  if (what == "bare") ns = RestoreBare(directory);
  if (what == "library") ns = RestoreByLibrary(directory);
  if (what == "fork") ns = Fork(directory);
  if (!ns.ok()) return ns.status();
  return json{{"ns", *ns}};
}

void Serve(const std::string& kernel) {
  for (std::string line; std::getline(std::cin, line);) {
    absl::StatusOr<json> answer = Do(line, kernel);
    if (!answer.ok()) answer = json{{"error", Message(answer.status())}};
    std::cout << answer->dump() << std::endl;
  }
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  std::string kernel;
  CLI::App app("Saves and restores machines for tools/compare restore, and tells how long it took.",
               "restore_times");
  app.add_option("--kernel", kernel, "the bare-metal guest")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ringside::kExitOk : ringside::kExitBadInput;
  }
  ringside::Serve(kernel);
  return ringside::kExitOk;
}
