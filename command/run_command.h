// `ringside run`: builds a machine from options, runs it on this terminal, and turns its end into
// an exit code. With --print-config it prints the options instead.
#pragma once

#include "base/log.h"
#include "command/line_writer.h"
#include "command/run_options.h"

namespace ringside {

class Machine;

// Somebody who does things to the machine while `ringside run` runs it.
class RunCompanion {
 public:
  // The machine has started.
  virtual void Begin(Machine& machine) = 0;
  // It is over, and about to go: returns when the companion has let go of it.
  virtual void End() = 0;

 protected:
  ~RunCompanion() = default;
};

// Returns the exit code; what went wrong is in the log, whose lines `errors` writes to stderr.
// `start_ns` is CLOCK_MONOTONIC at main. `companion`: null for none.
int RunCommand(const RunOptions& options, int64_t start_ns, LogSink& log, LineWriter& errors,
               RunCompanion* companion);

}  // namespace ringside
