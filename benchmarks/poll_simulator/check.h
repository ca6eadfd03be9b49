// What the policy `cost` promises, tried on every family at price 1.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/poll_simulator/simulation.h"

namespace ringside {

// The settings to be simulated: its two rivals and `cost`, on both hosts.
SimulationSettings CheckSettings(const FamilyOptions& made_up);

struct Verdict {
  std::string table;                  // the figures, a line a family
  std::vector<std::string> offences;  // a line each; none if all promises were kept
};

// `hosts`: of CheckSettings. The promises:
// - on each family at most 1.05 times the better of its rivals' costs;
// - below both in the sum over families;
// - in no adversary's trace, at no time, above twice the optimum by more than the budget.
// Costs are relative to the optimum, for an adversary has other waits for each policy.
Verdict CheckPromises(const std::vector<HostResult>& hosts);

}  // namespace ringside
