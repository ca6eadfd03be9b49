// How the I/O threads of a machine have waited, by name: for benchmarks and tests. What they have
// done is in ringside/statistics.h, and why they wait as they do in ringside/explanation.h.
#pragma once

#include <string>
#include <vector>

#include "poll/policy.h"

namespace ringside {

// How an I/O thread's newest waits were, oldest first (poll/wait_trace.h).
struct IoThreadWaits {
  std::string io_thread;
  std::vector<WaitOutcome> waits;
};

}  // namespace ringside
