#include "command/run_config.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>

#include "base/bad_input_errno.h"
#include "base/fd.h"
#include "base/read_text.h"
#include "base/status.h"
#include "vmm/config_json.h"

namespace ringside {
namespace {

absl::Status ReadConfigFile(const RunOptions& options, MachineOptions& machine) {
  const std::string& path = options.config;
  std::string text;
  if (options.config_text.has_value()) {
    text = *options.config_text;
  } else {
    RINGSIDE_ASSIGN_OR_RETURN(text, ReadConfigText("--config", path));
  }
  if (options.fork_number != 0) text = Numbered(text, options.fork_number);
  const absl::StatusOr<Json> json = ParseConfigJson(text);
  absl::Status status = json.ok() ? ReadOptions(*json, machine) : json.status();
  if (status.ok()) return status;
  return BadInput("--config '%s': %s", path, Message(status));
}

absl::Status CheckChoices(const RunOptions& options) {
  for (const RunOption& option : OwnRunOptions()) {
    if (option.choices.empty() || (options.*option.text).empty()) continue;
    const std::string& text = options.*option.text;
    if (std::ranges::find(option.choices, text) != option.choices.end()) continue;
    return BadInput("--%s '%s' is unknown: give %s", option.name, text,
                    JoinChoices(option.choices));
  }
  return absl::OkStatus();
}

absl::Status CheckHasQueues(const char* option, const std::string& value,
                            const MachineConfig& machine) {
  if (value.empty() || !machine.disks.empty() || !machine.networks.empty()) return absl::OkStatus();
  return BadInput("--%s is about disks and networks, and there is none: give a --disk or a --net",
                  option);
}

// Those that a run with a template may have, beside --template itself.
constexpr std::array<std::string_view, 8> kOfForks = {
    "config", "print-config",       "template", "forks", "forks-per-process",
    "exec",   "record-working-set", "stats"};

// An option of the command's own.
absl::StatusOr<int64_t> ReadNumber(const OptionSpec& spec, const std::string& text) {
  const OptionPlace place = {.prefix = "--", .between = " ", .is_text = true};
  RINGSIDE_ASSIGN_OR_RETURN(const Json value, ReadValue(spec, "ringside run", place, text));
  RINGSIDE_RETURN_IF_ERROR(CheckValue(spec, "ringside run", place, value));
  return value.get<int64_t>();
}

absl::Status CheckHasTemplate(const RunOptions& options) {
  if (!options.template_directory.empty()) return absl::OkStatus();
  for (const auto& [name, text] : {std::pair("forks", &options.forks),
                                   std::pair("forks-per-process", &options.forks_per_process),
                                   std::pair("exec", &options.exec)}) {
    if (text->empty()) continue;
    return BadInput("--%s %s is about forks, and there is none: give --template DIR", name, *text);
  }
  return absl::OkStatus();
}

// What the command wants to know of the machine, the machine has to note.
void Trace(const RunOptions& options, MachineConfig& machine) {
  const bool trace_latency = !options.trace_latency.empty();
  for (DiskConfig& disk : machine.disks) disk.trace_latency = trace_latency;
  for (NetConfig& network : machine.networks) network.trace_latency = trace_latency;
  if (machine.vsock) machine.vsock->trace_latency = trace_latency;
  if (options.poll_trace.empty()) return;
  if (machine.io_threads.empty()) machine.io_threads.emplace_back();
  for (IoThreadConfig& thread : machine.io_threads) thread.tuning.trace_waits = true;
}

}  // namespace

absl::StatusOr<std::string> ReadConfigText(const char* option, const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::optional<std::string> text;
  if (file.valid()) text = ReadText(file.get(), kMostConfigBytes);
  if (text) return *std::move(text);
  return BadInputErrno(errno, absl::StrFormat("%s cannot read '%s'", option, path));
}

absl::StatusOr<absl::Duration> MetricsInterval(const RunOptions& options) {
  if (options.metrics_interval.empty()) return absl::Seconds(60);
  if (options.metrics.empty()) {
    return BadInput("--metrics-interval %s is about a file, and there is none: give --metrics FILE",
                    options.metrics_interval);
  }
  static const OptionSpec kSpec = {
      .name = "metrics-interval",
      .type = {.kind = OptionKind::kTime, .least = 1'000'000'000, .most = 3'600'000'000'000}};
  RINGSIDE_ASSIGN_OR_RETURN(const int64_t ns, ReadNumber(kSpec, options.metrics_interval));
  return absl::Nanoseconds(ns);
}

absl::StatusOr<ForkCounts> CheckForks(const RunOptions& options) {
  // What is about one machine, and has no number in it.
  for (const RunOption& option : OwnRunOptions()) {
    const bool is_given =
        option.text != nullptr ? !(options.*option.text).empty() : options.*option.is_on;
    if (is_given && std::ranges::find(kOfForks, option.name) == kOfForks.end()) {
      return BadInput(
          "--%s is about one machine, and --template is for many: leave one of them out",
          option.name);
    }
  }
  static constexpr uint64_t kMost = 65536;
  static const OptionType kType = {.kind = OptionKind::kWhole, .least = 1, .most = kMost};
  static const OptionSpec kForks = {.name = "forks", .type = kType, .unit = "forks"};
  static const OptionSpec kPerProcess = {
      .name = "forks-per-process", .type = kType, .unit = "forks"};
  ForkCounts counts;
  if (!options.forks.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(counts.forks, ReadNumber(kForks, options.forks));
  }
  if (!options.forks_per_process.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(counts.per_process,
                              ReadNumber(kPerProcess, options.forks_per_process));
  }
  return counts;
}

absl::StatusOr<MachineOptions> MakeMachineOptions(
    const RunOptions& options, const std::shared_ptr<const MachineTemplate>& from) {
  RINGSIDE_RETURN_IF_ERROR(CheckHasTemplate(options));
  MachineOptions machine;
  machine.machine.from = from;
  if (!options.config.empty()) RINGSIDE_RETURN_IF_ERROR(ReadConfigFile(options, machine));
  for (const auto& [flag, texts] : options.machine) {
    if (!texts.empty()) RINGSIDE_RETURN_IF_ERROR(SetOption(flag, texts, machine));
  }
  const bool begins_elsewhere = options.serve || !options.template_directory.empty();
  if (!HasBeginning(machine.machine) && !begins_elsewhere) {
    return BadInput(
        "no kernel is given: give --kernel FILE, a \"kernel\" in --config's file, --restore DIR "
        "or --template DIR");
  }
  if (options.record_working_set) {
    if (machine.machine.restore.empty() && options.template_directory.empty()) {
      return BadInput(
          "--record-working-set is about a snapshot, and there is none: give --restore "
          "DIR or --template DIR");
    }
    machine.machine.restore_working_set = false;  // what it does not need is in no later one
  }
  RINGSIDE_RETURN_IF_ERROR(CheckChoices(options));
  RINGSIDE_RETURN_IF_ERROR(MetricsInterval(options).status());
  if (options.serve || (options.print_config && begins_elsewhere)) return machine;
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(machine));
  if (!options.print_config) RINGSIDE_RETURN_IF_ERROR(CompleteOptions(options, machine));
  return machine;
}

absl::Status CompleteOptions(const RunOptions& options, MachineOptions& machine) {
  if (!HasBeginning(machine.machine)) {
    return absl::FailedPreconditionError("no kernel is configured: call set-config with one");
  }
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(machine));
  RINGSIDE_RETURN_IF_ERROR(CheckHasQueues("trace-latency", options.trace_latency, machine.machine));
  RINGSIDE_RETURN_IF_ERROR(CheckHasQueues("poll-trace", options.poll_trace, machine.machine));
  RINGSIDE_RETURN_IF_ERROR(CheckHasQueues("signal-trace", options.signal_trace, machine.machine));
  RINGSIDE_RETURN_IF_ERROR(CheckHasQueues("explain", options.explain, machine.machine));
  Trace(options, machine.machine);
  return absl::OkStatus();
}

}  // namespace ringside
