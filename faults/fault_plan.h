// Which request meets which fault: a script's rules, and what they have counted and drawn so far.
//
// Threads: any; the channels of a disk share one. What is drawn depends on the order in which
// requests come: it is the same again for one queue with one request in flight.
#pragma once

#include <cstdint>
#include <vector>

#include "base/sync.h"
#include "faults/fault_script.h"

namespace ringside {

// The next of a sequence of random numbers, which follows from `state` (SplitMix64 by Steele, Lea
// and Flood).
inline uint64_t NextRandom(uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

struct FaultDecision {
  const FaultRule* rule = nullptr;  // null: none
  uint64_t random = 0;              // to draw from for this request
};

class FaultPlan {
 public:
  // `now_ns`: when the disk is opened, of any clock that Decide gets too.
  FaultPlan(FaultScript script, int64_t now_ns);

  FaultDecision Decide(const BlockRequest& request, int64_t now_ns);
  bool has_cut() const;
  const FaultScript& script() const { return script_; }

 private:
  // Of a rule.
  struct Progress {
    uint64_t matched = 0;
    uint64_t applied = 0;
  };
  bool Applies(const FaultRule& rule, Progress& progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FaultScript script_;
  const int64_t start_ns_;
  Mutex mutex_;
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  std::vector<Progress> progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
