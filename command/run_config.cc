#include "command/run_config.h"

#include <cerrno>
#include <fcntl.h>

#include "base/fd.h"
#include "base/read_text.h"
#include "base/status.h"
#include "vmm/config_json.h"

namespace ringside {
namespace {

absl::Status ReadConfigFile(const std::string& path, MachineOptions& machine) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::string text, ReadConfigText("--config", path));
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
  return BadInput("%s",
                  Message(ErrnoError(errno, absl::StrFormat("%s cannot read '%s'", option, path))));
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
  const OptionPlace place = {.prefix = "--", .between = " ", .is_text = true};
  RINGSIDE_ASSIGN_OR_RETURN(const Json value,
                            ReadValue(kSpec, "ringside run", place, options.metrics_interval));
  RINGSIDE_RETURN_IF_ERROR(CheckValue(kSpec, "ringside run", place, value));
  return absl::Nanoseconds(value.get<int64_t>());
}

absl::StatusOr<MachineOptions> MakeMachineOptions(const RunOptions& options) {
  MachineOptions machine;
  if (!options.config.empty()) RINGSIDE_RETURN_IF_ERROR(ReadConfigFile(options.config, machine));
  for (const auto& [flag, texts] : options.machine) {
    if (!texts.empty()) RINGSIDE_RETURN_IF_ERROR(SetOption(flag, texts, machine));
  }
  if (!HasBeginning(machine.machine) && !options.serve) {
    return BadInput(
        "no kernel is given: give --kernel FILE, a \"kernel\" in --config's file, or --restore "
        "DIR");
  }
  RINGSIDE_RETURN_IF_ERROR(CheckChoices(options));
  RINGSIDE_RETURN_IF_ERROR(MetricsInterval(options).status());
  if (options.serve) return machine;
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
