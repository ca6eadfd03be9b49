// Scenarios of a guest or a device that does what hurts a policy most.
#pragma once

#include <vector>

#include "benchmarks/signal_simulator/scenario.h"

namespace ringside {

std::vector<Scenario> MakeAdversaries();

}  // namespace ringside
