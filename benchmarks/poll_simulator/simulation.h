// Each family of traces through each policy, on each host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/poll_simulator/families.h"
#include "benchmarks/poll_simulator/replay.h"
#include "benchmarks/poll_simulator/trace.h"
#include "poll/policy.h"

namespace ringside {

// Where the waits take place: what a sleep costs there.
struct Host {
  std::string name;
  SleepCost sleep;
};
inline const Host kBareMetal = {"bare-metal",
                                {.wake_ns = 6'000, .kick_ns = 6'000, .cpu_ns = 4'000}};
// A virtual machine, with its idle CPUs.
inline const Host kSlow = {"slow", {.wake_ns = 25'000, .kick_ns = 25'000, .cpu_ns = 10'000}};

inline constexpr PollKind kAllPolicies[] = {PollKind::kNever,    PollKind::kAlways,
                                            PollKind::kFixed,    PollKind::kGrowShrink,
                                            PollKind::kWeighted, PollKind::kCost};

// Limits of `fixed` that the sweep tries.
inline constexpr int64_t kSweepNs[] = {0,      1'000,  2'000,  4'000,  6'000,  8'000,  12'000,
                                       16'000, 24'000, 32'000, 48'000, 64'000, 96'000, 128'000};

struct SimulationSettings {
  std::vector<Host> hosts = {kBareMetal, kSlow};
  std::vector<PollKind> policies = {std::begin(kAllPolicies), std::end(kAllPolicies)};
  std::vector<std::string> families = FamilyNames();
  std::optional<Family> recorded;  // one family more
  FamilyOptions made_up;
  PollConfig poll;     // all but the kind
  bool sweep = false;  // fixed with all of kSweepNs
};

struct TraceResult {
  std::string name;
  std::vector<Totals> policies;  // in the order of the settings
};

struct FamilyResult {
  std::string name;
  std::vector<TraceResult> traces;
  std::vector<Totals> policies;  // of all its traces
  std::vector<Totals> sweep;     // one for each of kSweepNs, or none
};

struct HostResult {
  Host host;
  std::vector<FamilyResult> families;
  std::vector<double> relative_sums;  // by policy: of the families' costs relative to the optimum
};

std::vector<HostResult> Simulate(const SimulationSettings& settings);

// 1 at best. Infinite if what costs something could have cost nothing.
double RelativeCost(const Totals& totals);
double RelativeToDozing(const Totals& totals);

}  // namespace ringside
