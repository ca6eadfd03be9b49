// Why an I/O thread polls, dozes or sleeps: what its policy knows and would do now. For people and
// tools. Made on demand, so it may allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "poll/policy.h"

namespace ringside {

// What decided how a wait went.
enum class WaitReason {
  kPolicy,     // the policy's rule, or what it learned
  kGuard,      // the plain limit, since what was learned has fallen behind it
  kPreempted,  // no polling, since another thread needed the processor
  kCeiling,    // no polling, or for less time, since cpu_max is used up
  kLearning,   // too little is known yet
};
inline constexpr size_t kWaitReasons = 5;
const char* WaitReasonName(WaitReason reason);

// Of one Waiting.
struct WaitExplanation {
  // Of the waits that are remembered, so many lasted from_ns <= waited_ns < to_ns.
  struct Bucket {
    int64_t from_ns = 0;
    int64_t to_ns = 0;  // PollPolicy::kForever: no end
    double weight = 0;  // what is old counts less
  };
  // A plan among which the policy chooses, and what it would have cost on the last waits, in ns.
  struct Candidate {
    const char* name = "";
    WaitPlan plan;
    double cost_ns = 0;
  };

  WaitPlan plan;                                  // of a wait that begins now
  std::array<uint64_t, kWaitReasons> waits = {};  // so far, by WaitReason
  std::vector<Candidate> candidates;              // empty: the policy knows no choice
  std::vector<Bucket> histogram;                  // ascending, none of no weight; empty: none kept
  // What waits have cost beyond what the policy stands for, and how much of that it takes before
  // it falls back to the plain limit. No budget: it stands for nothing.
  int64_t regret_ns = 0;
  int64_t regret_budget_ns = 0;

  uint64_t waits_by(WaitReason reason) const { return waits[static_cast<size_t>(reason)]; }
};

struct PollExplanation {
  std::array<WaitExplanation, kWaitings> waitings;  // by Waiting
  SleepCost sleep_cost;  // as measured, by IoThread::Explain; 0: it was not

  WaitExplanation& of(Waiting what) { return waitings[static_cast<size_t>(what)]; }
  const WaitExplanation& of(Waiting what) const { return waitings[static_cast<size_t>(what)]; }
};

}  // namespace ringside
