// `ringside run --template DIR --forks N`: many machines that go on from one snapshot, in as many
// processes as are asked for. The processes have inherited the template, which was read once.
#pragma once

#include "command/line_writer.h"
#include "command/run_options.h"
#include "ringside/log.h"

namespace ringside {

// Before the process has another thread. Returns the exit code: 0, or that of the first fork by
// number that has another. `errors` writes the log's lines.
int ForksCommand(const RunOptions& options, LogSink& log, LineWriter& errors);

}  // namespace ringside
