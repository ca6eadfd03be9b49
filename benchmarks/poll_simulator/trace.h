// Waits to be replayed: recorded, made up beforehand, or thought out by an adversary as it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "poll/policy.h"

namespace ringside {

struct Wait {
  Waiting what = Waiting::kIdle;
  int64_t waited_ns = 0;  // from when there was nothing left to do to the event
  int64_t busy_ns = 0;    // what the thread then works, until its next wait
  uint64_t ready = 0;     // as WaitOutcome's
};

// Sees the plan for a wait and answers with the wait's length. Holds all its state, so that a copy
// taken before the first call starts anew.
using Adversary = std::function<int64_t(const WaitPlan&)>;

// Of one thread.
struct Trace {
  std::string name;
  std::vector<Wait> waits;
  Adversary adversary;  // if there is one, it sets waited_ns
};

// Traces of a kind, which are judged together.
struct Family {
  std::string name;
  std::vector<Trace> traces;
};

}  // namespace ringside
