// What a simulation found, for a person and for a program.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/poll_simulator/simulation.h"

namespace ringside {

// A table a host.
std::string SimulationTable(const SimulationSettings& settings,
                            const std::vector<HostResult>& hosts);

// One document; docs/polling.md says what is in it. An infinite figure is null.
std::string SimulationJson(const SimulationSettings& settings,
                           const std::vector<HostResult>& hosts);

}  // namespace ringside
