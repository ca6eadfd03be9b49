// How the I/O threads of a machine wait, by name: for people, benchmarks and tests. What they have
// done is in ringside/statistics.h.
#pragma once

#include <string>
#include <vector>

#include "poll/explanation.h"
#include "poll/policy.h"

namespace ringside {

// How an I/O thread's newest waits were, oldest first (poll/wait_trace.h).
struct IoThreadWaits {
  std::string io_thread;
  std::vector<WaitOutcome> waits;
};

// How an I/O thread waits now, and why.
struct IoThreadExplanation {
  std::string io_thread;
  PollExplanation poll;
};

}  // namespace ringside
