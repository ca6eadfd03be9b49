#include "command/trace_files.h"

#include <functional>

#include "base/status.h"
#include "command/latency_file.h"
#include "command/signal_file.h"
#include "command/wait_file.h"

namespace ringside {

absl::StatusOr<TraceFiles> OpenTraces(const RunOptions& options, const Logger& log) {
  TraceFiles files;
  if (!options.events.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.events, EventFile::Open(options.events, log));
  }
  if (!options.trace_latency.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.latencies,
                              TraceFile::Open(kLatencyFile, options.trace_latency));
  }
  if (!options.poll_trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.waits, TraceFile::Open(kWaitFile, options.poll_trace));
  }
  if (!options.signal_trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.signals, TraceFile::Open(kSignalFile, options.signal_trace));
  }
  return files;
}

bool WriteTraces(const Traced& traced, const TraceFiles& files, const Logger& log) {
  bool written = true;
  const auto write = [&](const TraceFile& file, const std::function<void(std::ostream&)>& fill) {
    const absl::Status status = file.Write(fill);
    if (!status.ok()) log.Log(Severity::kError, "%s", Message(status));
    written &= status.ok();
  };
  if (files.latencies) {
    write(*files.latencies, [&](std::ostream& file) { WriteLatencies(traced.latencies, file); });
  }
  if (files.waits) {
    write(*files.waits, [&](std::ostream& file) { WriteWaits(traced.waits, file); });
  }
  if (files.signals) {
    write(*files.signals, [&](std::ostream& file) { WriteSignals(traced.signals, file); });
  }
  return written;
}

}  // namespace ringside
