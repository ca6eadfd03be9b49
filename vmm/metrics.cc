#include "vmm/metrics.h"

#include <poll.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "vmm/metric_table.h"

namespace ringside {
namespace {

MachineState StateOf(Machine& machine) {
  pollfd end = {.fd = machine.end_fd(), .events = POLLIN, .revents = 0};
  if (poll(&end, 1, 0) == 1) return MachineState::kEnded;
  if (machine.paused()) return MachineState::kPaused;
  return machine.first_run_ns() == 0 ? MachineState::kCreated : MachineState::kRunning;
}

constexpr const char* kMarkdownHead =
    R"(<!-- Made by 'ringside config --metrics' from the table of metrics: change that. -->
# Metrics

What `ringside run --metrics FILE` writes ([running.md](running.md)), in the text format of
Prometheus. Counters count from the machine's beginning. Where the metrics of several machines come
together each sample has a label `machine` more; `--metrics` takes its value from the file's name.
Metrics are there for the devices, I/O threads and vCPUs that the machine has, and a histogram from the
first request on that was traced.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
)";

}  // namespace

const char* MachineStateName(MachineState state) {
  constexpr const char* kNames[kMachineStates] = {"created", "running", "paused", "ended"};
  return kNames[static_cast<size_t>(state)];
}

std::string MetricsText(const MetricSource& source) {
  MetricWriter writer(source.machine);
  for (const Metric& metric : Metrics()) {
    writer.Begin(metric);
    metric.write(source, writer);
  }
  return writer.Take();
}

std::string MetricsText(Machine& machine, const std::string& name) {
  const MachineStatistics statistics = machine.Statistics();
  return MetricsText({.statistics = statistics,
                      .state = StateOf(machine),
                      .process = ReadProcessUsage(),
                      .machine = name});
}

std::string MetricsMarkdown() {
  std::string text = kMarkdownHead;
  for (const Metric& metric : Metrics()) {
    absl::StrAppendFormat(&text, "| `%s` | %s | %s | %s |\n", metric.name,
                          MetricTypeName(metric.type), absl::StrJoin(metric.labels, ", "),
                          metric.help);
  }
  return text;
}

}  // namespace ringside
