// The files that `ringside run` fills, as it goes on or at its end: those that are asked for.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "command/event_file.h"
#include "command/run_options.h"
#include "command/trace_file.h"
#include "devices/signal_records.h"
#include "poll/io_threads.h"
#include "ringside/statistics.h"

namespace ringside {

struct TraceFiles {
  std::unique_ptr<EventFile> events;
  std::optional<TraceFile> latencies;
  std::optional<TraceFile> waits;
  std::optional<TraceFile> signals;
};

absl::StatusOr<TraceFiles> OpenTraces(const RunOptions& options, const Logger& log);

// What they are filled with, for each that is asked for.
struct Traced {
  std::vector<QueueLatencies> latencies;
  std::vector<IoThreadWaits> waits;
  std::vector<QueueSignals> signals;
};

// Whether all could be written; what could not is logged.
bool WriteTraces(const Traced& traced, const TraceFiles& files, const Logger& log);

}  // namespace ringside
