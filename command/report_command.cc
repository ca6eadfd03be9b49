#include "command/report_command.h"

#include "base/status.h"
#include "command/exit_codes.h"
#include "command/latency_file.h"
#include "command/latency_summary.h"
#include "command/standard_output.h"
#include "command/trace_file.h"

namespace ringside {
namespace {

// What LatencySvg begins with: another picture is not overwritten.
constexpr TraceFormat kLatencySvg = {
    .option = "--svg",
    .beginning = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\""};

absl::Status Report(const ReportOptions& options) {
  const absl::StatusOr<std::vector<QueueLatencies>> queues = ReadLatencies(options.file);
  if (!queues.ok()) return queues.status();
  const LatencyReport report = Summarize(*queues);
  if (!options.svg.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(const TraceFile svg, TraceFile::Open(kLatencySvg, options.svg));
    RINGSIDE_RETURN_IF_ERROR(svg.Write([&](std::ostream& file) { file << LatencySvg(report); }));
  }
  return WriteToStdout(options.json ? LatencyJson(report) : LatencyTable(report));
}

}  // namespace

int ReportCommand(const ReportOptions& options, LogSink& log) {
  return Finish(Report(options), log);
}

}  // namespace ringside
