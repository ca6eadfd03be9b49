// A machine's statistics for Prometheus and what reads its text format, version 0.0.4. Which
// metrics there are is a table (vmm/metric_table.h), from which docs/metrics.md is made. Names and
// labels of metrics are kept: dashboards and alerts have them.
//
// Counters count from the machine's beginning, those of a device that was made anew from there.
// Spec: prometheus.io/docs/instrumenting/exposition_formats, "Text-based format".
#pragma once

#include <string>
#include <string_view>

#include "ringside/machine.h"
#include "ringside/statistics.h"
#include "vmm/process_usage.h"

namespace ringside {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

enum class MachineState { kCreated, kRunning, kPaused, kEnded };
inline constexpr size_t kMachineStates = 4;
const char* MachineStateName(MachineState state);

// What metrics are made of.
struct MetricSource {
  const MachineStatistics& statistics;
  MachineState state = MachineState::kRunning;
  ProcessUsage process;
  // The value of a label "machine" of each sample, where the metrics of several machines come
  // together; empty: there is no such label. Any bytes.
  std::string machine;
};

std::string MetricsText(const MetricSource& source);

// Of a machine as it is now. Any thread but the machine's own; waits for no storage and no I/O
// thread, and wakes none.
std::string MetricsText(Machine& machine, const std::string& name = "");

}  // namespace ringside
