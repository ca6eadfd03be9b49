// Waits thought out against whoever plans them. Each adversary is a function of the plans it has
// seen and of random numbers of its own; see Adversary in trace.h. No wait is shorter than 1 us,
// of which the thread would hardly have seen the beginning.
#pragma once

#include <cstdint>

#include "benchmarks/poll_simulator/generators.h"
#include "benchmarks/poll_simulator/trace.h"

namespace ringside {

// The event comes `late_ns` after the thread gave up looking. Whoever never gives up waits for 1
// ms.
Adversary JustBeyondTheLimit(int64_t late_ns, int64_t wake_ns);

// The event comes `early_ns` before a doze ends. Whoever does not doze gets a steady period of
// `bait_ns`, which should make it.
Adversary JustInsideTheDoze(int64_t early_ns, int64_t bait_ns);

// Trains of waits of either length. A train is at least a random number of waits long, up to
// `longest_train`, and then goes on until the plan has changed by a quarter or four times as many
// have passed: whatever was learned is wrong from the next wait on.
struct Trains {
  int64_t short_ns = 0;
  int64_t long_ns = 0;
  int longest_train = 1;
};
Adversary TrainsAgainstTheLearner(const Trains& trains, const Random& random);

// By chance a little shorter or a little longer than what a sleep costs: by the share `deviation`.
Adversary AroundTheSleepCost(int64_t break_even_ns, double deviation, const Random& random);

}  // namespace ringside
