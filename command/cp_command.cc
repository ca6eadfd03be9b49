#include "command/cp_command.h"

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "agent/client.h"
#include "agent/tree_reader.h"
#include "agent/tree_writer.h"
#include "base/status.h"
#include "command/agent_socket.h"
#include "command/end_signals.h"
#include "command/exit_codes.h"
#include "command/progress_bar.h"
#include "command/standard_output.h"

namespace ringside {
namespace {

constexpr std::string_view kGuest = "guest:";
constexpr uint32_t kStreamMode = 0644;  // of a file that standard input becomes

constexpr char kHelp[] =
    "One of SRC and DST is in the guest. A directory at DST takes SRC under its own name. A file "
    "appears when all of it is there; permissions go along, owners and times do not.\n\n"
    "Examples:\n"
    "  ringside cp --vsock vm.vsock job.py guest:/srv/job.py\n"
    "  ringside cp --vsock vm.vsock -r site guest:/var/www\n"
    "  ringside cp --vsock vm.vsock guest:/var/log/syslog .\n"
    "  ringside cp --vsock vm.vsock guest:/etc/os-release - | grep VERSION\n"
    "  pg_dump | ringside cp --vsock vm.vsock - guest:/srv/dump.sql\n\n"
    "Exit codes: 0 done, 1 failure at run time, 2 bad input, or what is to be copied is not there, "
    "128 + n ended by signal n.";

bool IsInGuest(const std::string& place) {
  return place.starts_with(kGuest);
}

absl::Status Put(AgentClient& client, const CpOptions& options) {
  TreeReader tree;
  if (options.source == "-") {
    tree.OpenStream(UniqueFd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)), kStreamMode);
  } else {
    tree.Open(options.source, options.with_directories);
  }
  ProgressBar bar(STDERR_FILENO);
  uint64_t of = UINT64_MAX;  // bytes of the file under way
  return client.Put(tree, std::string_view(options.target).substr(kGuest.size()),
                    [&](uint64_t done, uint64_t size) {
                      if (size == 0) return;  // a stream's is not known
                      if (size != of || done == 0) bar.Begin("copying", of = size);
                      bar.At(done);
                    });
}

// The bytes of one file.
absl::Status WriteOut(const AgentFrame& frame) {
  if (frame.type == AgentType::kData) return WriteToStdout(frame.payload);
  if (frame.type != AgentType::kEntry) return absl::OkStatus();
  const std::optional<EntryMessage> entry = DecodeEntry(frame.payload);
  if (entry && entry->kind == EntryKind::kFile) return absl::OkStatus();
  return BadInput("a directory cannot be written to standard output; name a file");
}

absl::Status Get(AgentClient& client, const CpOptions& options) {
  const bool to_stdout = options.target == "-";
  const std::string_view source = std::string_view(options.source).substr(kGuest.size());
  TreeWriter tree;
  if (!to_stdout) {
    RINGSIDE_RETURN_IF_ERROR(
        StatusOfFault(tree.OpenToGet(options.target, source, options.with_directories)));
  }
  ProgressBar bar(STDERR_FILENO);
  uint64_t done = 0;
  return client.Get(source, options.with_directories, [&](const AgentFrame& frame) {
    const std::optional<EntryMessage> entry =
        frame.type == AgentType::kEntry ? DecodeEntry(frame.payload) : std::nullopt;
    if (entry) {
      done = 0;
      bar.Begin("copying", entry->size);
    } else if (frame.type == AgentType::kData) {
      bar.At(done += frame.payload.size());
    }
    return to_stdout ? WriteOut(frame) : StatusOfFault(tree.Take(frame));
  });
}

// A signal ends the copy first, as an error does, so that no part of a file is left; the second one
// ends the process at once. Who writes to standard output, which may not be read, does without, and
// so does who copies into the guest: there the agent sees to it.
absl::Status GetBetweenSignals(AgentClient& client, const CpOptions& options) {
  const EndSignals signals;
  int first = 0;
  absl::Status status;
  signals.Attend([&] { status = Get(client, options); },
                 [&](int signal) {
                   if (first != 0) signals.Deliver(signal);
                   first = signal;
                   client.Cancel();
                 });
  if (first != 0) signals.Deliver(first);
  signals.Release();
  return status;
}

absl::Status Copy(const CpOptions& options) {
  if (IsInGuest(options.source) == IsInGuest(options.target)) {
    return BadInput("one of '%s' and '%s' has to be guest:/PATH, and the other one on this host",
                    options.source, options.target);
  }
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, AgentClient::Connect(options.vsock, options.port));
  if (IsInGuest(options.target)) return Put(client, options);
  return options.target == "-" ? Get(client, options) : GetBetweenSignals(client, options);
}

}  // namespace

void AddCpOptions(CLI::App& cp, CpOptions& options) {
  AddAgentSocket(cp, options.vsock, options.port);
  cp.add_flag("-r,--recursive", options.with_directories,
              "copy directories with all that is in them");
  cp.add_option("SRC", options.source, "a path here, or guest:/PATH, or - for standard input")
      ->required()
      ->type_name("");
  cp.add_option("DST", options.target, "a path here, or guest:/PATH, or - for standard output")
      ->required()
      ->type_name("");
  cp.footer(kHelp);
}

int CpCommand(const CpOptions& options, LogSink& log) {
  return Finish(Copy(options), log);
}

}  // namespace ringside
