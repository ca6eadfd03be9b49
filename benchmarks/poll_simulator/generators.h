// Waits made up by a rule: one pure function each, which depends on nothing but its arguments and
// the random numbers it draws. Durations in nanoseconds; no wait is shorter than 1 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmarks/poll_simulator/trace.h"

namespace ringside {

using Random = std::mt19937_64;

inline constexpr int64_t kBusyNs = 2'000;       // what a thread works between two waits
inline constexpr uint64_t kCompletionBit = 1;   // of WaitOutcome's ready
inline constexpr uint64_t kFirstSourceBit = 2;  // all traffic of one source
inline constexpr uint64_t kSecondSourceBit = 4;

// One event a period, give or take a normal deviation of `jitter` periods.
std::vector<Wait> Periodic(int64_t period_ns, double jitter, size_t count, Random& random);

std::vector<Wait> Poisson(int64_t mean_ns, size_t count, Random& random);

// Bursts of a geometric number of waits, exponential ones in a burst as between two.
struct Bursts {
  int64_t within_ns = 0;
  int64_t between_ns = 0;
  double mean_length = 1;
};
std::vector<Wait> OnOff(const Bursts& bursts, size_t count, Random& random);

// Either of two lengths, give or take a normal deviation of a tenth.
struct TwoModes {
  int64_t short_ns = 0;
  int64_t long_ns = 0;
  double short_share = 0.5;
};
std::vector<Wait> Bimodal(const TwoModes& modes, size_t count, Random& random);

// Exponential; the mean goes from `least_ns` to `most_ns` and back, evenly in its logarithm, once
// in `cycle` waits.
std::vector<Wait> Drifting(int64_t least_ns, int64_t most_ns, size_t cycle, size_t count,
                           Random& random);

// At least `least_ns`; cut at a second.
std::vector<Wait> Pareto(int64_t least_ns, double shape, size_t count, Random& random);

// `sigma`: of the logarithm. Cut at a second.
std::vector<Wait> Lognormal(int64_t median_ns, double sigma, size_t count, Random& random);

// One request at a time: the disk's wait in flight, then the guest's while idle. The disk takes
// about `disk_ns` (lognormal, sigma 0.2), the guest thinks for `think_ns` on average (a tenth at
// least, the rest exponential).
std::vector<Wait> ClosedLoop(int64_t disk_ns, int64_t think_ns, size_t count, Random& random);

// Exponential: `idle_waits` of a mean of `idle_ns`, then `busy_waits` of `busy_ns`, and so on.
struct Phases {
  int64_t idle_ns = 0;
  size_t idle_waits = 0;
  int64_t busy_ns = 0;
  size_t busy_waits = 0;
};
std::vector<Wait> PhaseChange(const Phases& phases, size_t count, Random& random);

// Two sources, whose events come by themselves (Poisson). Those that come while the thread works
// for the other are found at once, without a wait.
std::vector<Wait> TwoSources(int64_t first_ns, int64_t second_ns, size_t count, Random& random);

}  // namespace ringside
