// What the policy `cost` promises, tried on every scenario.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/signal_simulator/simulation.h"

namespace ringside {

// In this order CheckPromises wants them.
inline const std::vector<SignallerKind> kCheckedPolicies = {
    SignallerKind::kEarly, SignallerKind::kBatched, SignallerKind::kCost};

// The promises are a table in check.cc. Returns a line for each that was broken.
std::vector<std::string> CheckPromises(const std::vector<CaseResult>& cases);

}  // namespace ringside
