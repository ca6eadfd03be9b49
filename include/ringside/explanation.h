// Why a machine's I/O threads poll, doze or sleep, and when they interrupt the guest: what the
// policy of each knows and would do now.
// All of it is a copy, made when it is asked for. Times are in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringside {

// A time of a wait that has no end.
inline constexpr int64_t kWaitForever = INT64_MAX;

// What is waited for. With requests in flight it is a completion most of the time, else a new
// request: two very different waits that alternate at depth 1, so each is learned by itself.
enum class Waiting { kIdle, kInFlight };
inline constexpr int kWaitings = 2;

// What sleeping costs instead of polling. 0: it was not measured.
struct SleepCost {
  // Latency, until the thread runs: from an interrupt, and from a signal of another thread, which
  // also has to send it.
  int64_t wake_ns = 0;
  int64_t kick_ns = 0;
  int64_t cpu_ns = 0;  // CPU time: of asking for signals, going to sleep and waking

  int64_t LatencyNs(Waiting what) const { return what == Waiting::kIdle ? kick_ns : wake_ns; }
};

// In this order: the thread sleeps for `doze_ns` unless something comes, polls for `spin_ns`,
// sleeps until something comes.
struct WaitPlan {
  int64_t doze_ns = 0;
  int64_t spin_ns = 0;      // kWaitForever: until something comes
  bool offers_cpu = false;  // polls on only while no other thread waits for the CPU
  bool may_hold = false;    // polls on, instead of dozing or sleeping, while interrupts are held
};

// What decided how a wait went.
enum class WaitReason {
  kPolicy,     // the policy's rule, or what it learned
  kGuard,      // the plain limit, since what was learned has fallen behind it
  kPreempted,  // no polling, since another thread needed the processor
  kCeiling,    // no polling, or for less time, since cpu_max is used up
  kLearning,   // too little is known yet
};
inline constexpr size_t kWaitReasons = 5;

// Of one Waiting.
struct WaitExplanation {
  // Of the waits that are remembered, so many lasted from_ns <= waited_ns < to_ns.
  struct Bucket {
    int64_t from_ns = 0;
    int64_t to_ns = 0;  // kWaitForever: no end
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

// That of a thread that never polls is empty.
struct PollExplanation {
  std::array<WaitExplanation, kWaitings> waitings;  // by Waiting
  SleepCost sleep_cost;                             // as measured

  WaitExplanation& of(Waiting what) { return waitings[static_cast<size_t>(what)]; }
  const WaitExplanation& of(Waiting what) const { return waitings[static_cast<size_t>(what)]; }
};

// Why the interrupt for completions was raised when it was (docs/signalling.md).
enum class SignalReason : uint8_t {
  kDry,      // the guest had little or nothing at hand
  kEarly,    // it does best without holding any
  kAwaited,  // somebody in the guest waits for one of the completions alone
  kSilence,  // it did not get on with what it had
  kAge,      // none is held for longer
  kHurry,    // a flush was among the completions
  kSleep,    // the thread was about to sleep, or the queue to leave it
  kHold,     // it was not raised yet
};
inline constexpr size_t kSignalReasons = 7;  // for which it is raised

// What is known of the guest that has a queue. Times are 0 while they are unknown.
struct SignalExplanation {
  // A guest is *at hand* of requests that were completed, and that it was told of and has not
  // replaced by new ones yet. While that is more than a share of all its requests, interrupts wait.
  // Among these shares the best is chosen; 1: none ever waits; 0: while it has any.
  static constexpr size_t kRungs = 4;
  static constexpr std::array<double, kRungs> kShares = {1, 0.5, 0.25, 0};

  // While it has from 2^i to 2^(i+1) - 1 requests, those beyond that for the last i.
  struct Lesson {
    size_t rung = 0;                     // in use: that of kShares[rung]
    std::array<double, kRungs> rates{};  // requests per ns, as measured; 0: not known
  };
  static constexpr size_t kDepths = 10;

  double reaction_ns = 0;  // the longest between two signs that it got on, lately
  double silence_ns = 0;   // no interrupt is held for a guest that gives no sign for longer
  std::array<Lesson, kDepths> lessons;
};

struct QueueExplanation {
  std::string device;  // its id
  uint16_t queue = 0;
  SignalExplanation signals;  // empty where interrupts are not held
};

struct IoThreadExplanation {
  std::string io_thread;
  PollExplanation poll;
  // Those that it serves, but for devices of which a queue is just being moved.
  std::vector<QueueExplanation> queues;
};

}  // namespace ringside
