// A process of the command's that runs some of the forks of a template (command/forks_command.h).
//
// It has inherited the template, and all that its forks write is its own. What it has to say of a
// fork it writes as a line (command/fork_results.h); what the fork's command says goes to standard
// output and standard error, each line behind the fork's number.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "command/run_options.h"
#include "ringside/log.h"
#include "ringside/machine_template.h"

namespace ringside {

struct ForkSpan {
  uint32_t first = 1, last = 1;  // numbers, both of them in it
};

// Descriptors that a worker has from the command.
struct WorkerPipes {
  int results = -1;  // to be written
  // A byte for each processor of the host: a worker takes one while it makes a fork, so that forks
  // of several processes do not make each other late. Both ends; reading does not block.
  std::array<int, 2> turns = {-1, -1};
};

// In a process that has no other thread. Returns what the process exits with, once all of them are
// over, or a signal has ended them: not 0 if what their commands said is lost, or there was no
// descriptor even to begin with.
int RunForks(const RunOptions& options, const std::shared_ptr<const MachineTemplate>& from,
             ForkSpan span, const WorkerPipes& pipes, LogSink& log);

}  // namespace ringside
