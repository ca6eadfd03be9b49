// What simulations found, for a person and for a program.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/signal_simulator/offline.h"
#include "benchmarks/signal_simulator/signal_trace.h"
#include "benchmarks/signal_simulator/simulation.h"

namespace ringside {

// A line for each scenario, and a table for each.
std::string SignalSummary(const std::vector<SignallerKind>& policies,
                          const std::vector<CaseResult>& cases);
std::string SignalTables(const std::vector<SignallerKind>& policies,
                         const std::vector<CaseResult>& cases);

// What each trace has cost, would have cost with each policy, and the least.
std::string SignalTraceTable(const std::vector<SignallerKind>& policies,
                             const SignallerSettings& settings, const SignalPrice& price,
                             const std::vector<SignalTrace>& traces);

// One document; docs/signalling.md says what is in it.
std::string SignalJson(const std::vector<SignallerKind>& policies, const RunOptions& options,
                       const std::vector<CaseResult>& cases);

}  // namespace ringside
