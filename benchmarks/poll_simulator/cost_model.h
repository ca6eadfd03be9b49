// What a wait costs, by how it was planned and how long it turned out to be; and the least that one
// could have cost. Times in nanoseconds, a cost in nanoseconds of latency: latency added + price x
// CPU time burnt.
//
// A sleep costs its CPU time and, at its end, the time it takes to wake. A doze is a sleep that a
// timer may end; what comes while the thread wakes from that is found once it runs.
#pragma once

#include <cstdint>

#include "poll/policy.h"

namespace ringside {

struct CostModel {
  SleepCost sleep;
  double price = 1.0;
};

// Of one wait.
struct WaitCharge {
  int64_t cpu_ns = 0;      // of looking and of sleeping
  int64_t latency_ns = 0;  // from the event until the thread runs
  int64_t spun_ns = 0;     // the share of cpu_ns that went into looking
  bool event_woke = false;
  bool timer_woke = false;
};

WaitCharge ChargeOf(const WaitPlan& plan, int64_t waited_ns, const SleepCost& sleep);

double CostOf(const WaitCharge& charge, double price);

// Of the clairvoyant, who looks until the event or sleeps at once, whichever costs less.
double OptimumOf(int64_t waited_ns, const CostModel& model);

// Of the one who may doze as well, and wakes as the event comes.
double DozingOptimumOf(int64_t waited_ns, const CostModel& model);

// The longest wait for which looking costs no more than sleeping.
int64_t BreakEvenNs(const CostModel& model);

}  // namespace ringside
