// The simulator's command line, in the words of its user.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/signal_simulator/offline.h"
#include "benchmarks/signal_simulator/signal_trace.h"
#include "benchmarks/signal_simulator/simulation.h"

namespace ringside {

struct SignalSimulatorOptions {
  std::vector<std::string> policies;  // empty: all
  std::vector<std::string> families;  // empty: all
  std::string scenario;               // those with this in their name
  std::string length = "60ms";
  std::string signal_cost = "5us";
  std::string silence = "30us";
  double price = 0.1;
  int64_t seed = 1;
  std::string trace;  // a recorded one's file, instead of the scenarios
};

struct SignalSettings {
  std::vector<SignallerKind> policies;
  std::vector<Scenario> scenarios;
  RunOptions run;
  SignalPrice price;
  std::vector<SignalTrace> recorded;
};

// Reads the recorded trace, if there is one. Errors: InvalidArgument, one line.
absl::StatusOr<SignalSettings> ParseSignalOptions(const SignalSimulatorOptions& options);

}  // namespace ringside
