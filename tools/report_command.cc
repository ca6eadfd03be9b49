#include "tools/report_command.h"

#include <cstdio>
#include <fstream>

#include "base/status.h"
#include "tools/exit_codes.h"
#include "tools/latency_file.h"
#include "tools/latency_summary.h"

namespace ringside {
namespace {

absl::Status Report(const ReportOptions& options) {
  const absl::StatusOr<std::vector<QueueLatencies>> queues = ReadLatencies(options.file);
  if (!queues.ok()) return queues.status();
  const LatencyReport report = Summarize(*queues);
  if (!options.svg.empty()) {
    std::ofstream svg(options.svg);
    svg << LatencySvg(report);
    svg.close();
    if (!svg.good()) return BadInput("--svg cannot write '%s'", options.svg);
  }
  std::fputs((options.json ? LatencyJson(report) : LatencyTable(report)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int ReportCommand(const ReportOptions& options, LogSink& log) {
  const absl::Status status = Report(options);
  if (!status.ok()) log.Log(Severity::kError, Message(status));
  return ExitCodeOf(status);
}

}  // namespace ringside
