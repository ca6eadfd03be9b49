// `ringside run`: builds a machine from options, runs it on this terminal, and turns its end into
// an exit code.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "command/line_writer.h"

namespace ringside {

class Machine;

// As given on the command line.
struct RunOptions {
  std::string kernel;
  std::string initrd;
  std::string command_line;
  std::string entry;  // auto, linux or pvh
  std::string cpus;
  std::string memory;  // a size
  std::string serial;  // stdio, file=PATH[,...] or none
  std::vector<std::string> disks;
  std::vector<std::string> assigned;  // addresses
  std::vector<std::string> io_threads;
  std::string cpu_affinity;   // empty: none
  std::string halt_poll;      // a time, or kernel
  std::string pit;            // auto, on or off
  std::string stats;          // empty, table or json
  std::string explain;        // empty, text or json
  std::string trace_latency;  // a file; empty: no trace
  std::string poll_trace;     // likewise
  bool timing = false;
};

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
