// The families of scenarios, by name.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/signal_simulator/scenario.h"

namespace ringside {

// The family of those who do what hurts a policy most.
inline constexpr const char* kAdversaries = "adversaries";

// In the order in which they are reported: what workloads do, then what adversaries do.
const std::vector<std::string>& SignalFamilyNames();

// `name` is one of them.
std::vector<Scenario> MakeSignalFamily(const std::string& name);

}  // namespace ringside
