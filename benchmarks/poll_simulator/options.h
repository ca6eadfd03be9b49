// The simulator's command line, in the words of its user.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/poll_simulator/simulation.h"

namespace ringside {

struct SimulatorOptions {
  std::string host = "both";
  std::string wake;       // empty: as the host
  std::string sleep_cpu;  // empty: as the host
  std::string max = "32us";
  double price = 1.0;
  int64_t waits = 20'000;
  int64_t seed = 1;
  std::vector<std::string> policies;  // empty: all
  std::vector<std::string> families;  // empty: all, or none with a recorded trace
  std::string trace;                  // a recorded one's file
  bool sweep = false;
};

// Reads the recorded trace, if there is one. Errors: InvalidArgument, one line.
absl::StatusOr<SimulationSettings> ParseOptions(const SimulatorOptions& options);

}  // namespace ringside
