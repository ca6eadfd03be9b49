// The families of traces that the simulator makes up, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/poll_simulator/cost_model.h"
#include "benchmarks/poll_simulator/trace.h"

namespace ringside {

struct FamilyOptions {
  size_t waits = 20'000;  // in each trace
  uint64_t seed = 1;
};

// In the order in which they are reported: what workloads do, then what adversaries do.
const std::vector<std::string>& FamilyNames();

// `name` is one of them; the same arguments give the same traces. Adversaries aim at `model`'s
// sleep cost.
Family MakeFamily(const std::string& name, const FamilyOptions& options, const CostModel& model);

}  // namespace ringside
