// How an I/O thread waits: how long it polls its rings before it goes to sleep, and whether it
// first dozes, by a timer, until shortly before something is due. Pure logic: no clock, no thread,
// so that a recorded trace of waits can drive it (benchmarks/poll_simulator).
//
// A wait lasts from the moment there was nothing left to do to the next event. Neither time spent
// working is in it, nor, if the thread slept, what it took to wake it: that would make every short
// wait seem long where waking is slow, and nobody would ever begin to poll.
//
// Threads: the I/O thread's own.
#pragma once

#include <cstdint>
#include <memory>

#include "ringside/config.h"
#include "ringside/explanation.h"

namespace ringside {

// As written on the command line.
const char* PollKindName(PollKind kind);

// As written in reports.
const char* WaitingName(Waiting what);
const char* WaitReasonName(WaitReason reason);

struct WaitOutcome {
  Waiting what = Waiting::kIdle;
  bool preempted = false;  // another thread took the CPU that was offered, and so ended the polling
  bool preempted_for_long = false;
  bool slept = false;  // when something came: `waited_ns` is an estimate
  int64_t start_ns = 0;
  int64_t waited_ns = 0;
  int64_t spun_ns = 0;  // CPU time spent polling
  uint64_t ready = 0;   // who had work then: bit 0 is the completion ring, others are sources
};

class PollPolicy {
 public:
  static constexpr int64_t kForever = kWaitForever;

  virtual ~PollPolicy() = default;
  // For the wait that begins at `now_ns`.
  virtual WaitPlan Plan(Waiting what, int64_t now_ns) = 0;
  // That wait is over. Each Plan is followed by one Observe, or none if the policy changes.
  virtual void Observe(const WaitOutcome& outcome) = 0;
  // As measured anew.
  virtual void SetSleepCost(const SleepCost&) {}
  // What it knows and would do now.
  virtual PollExplanation Explain() const;

  // Null for kNever.
  static std::unique_ptr<PollPolicy> Create(const PollConfig& config);
};

}  // namespace ringside
