// What I/O threads have done and how they wait, as numbers: for people, benchmarks and tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "poll/explanation.h"
#include "poll/policy.h"

namespace ringside {

// How an I/O thread's newest waits were, oldest first (poll/wait_trace.h).
struct IoThreadWaits {
  std::string io_thread;
  std::vector<WaitOutcome> waits;
};

// How an I/O thread waits now, and why.
struct IoThreadExplanation {
  std::string io_thread;
  PollExplanation poll;
};

struct IoThreadStatistics {
  std::string name;
  std::string waiter;  // "io_uring" or "epoll"
  // As set now.
  PollConfig poll;
  std::string signal;     // "early" or "batched"
  std::vector<int> cpus;  // of the host, where it is kept; empty: anywhere

  uint64_t turns = 0;
  uint64_t spins = 0;  // waits that began by looking at the rings
  uint64_t spin_hits = 0;
  uint64_t spin_used_ns = 0;
  uint64_t spin_wasted_ns = 0;
  uint64_t spin_limit_ns = 0;  // of the last wait: what the policy makes of its settings
  uint64_t dozes = 0;          // sleeps by a timer
  uint64_t doze_ends = 0;      // of those, the ones that the timer ended
  uint64_t preempted = 0;      // looks given up since another thread waited for the CPU
  // What going to sleep costs: the latency of waking by an interrupt or by another thread, and CPU
  // time. 0: not measured, as it never looks.
  uint64_t wake_ns = 0;
  uint64_t kick_ns = 0;
  uint64_t sleep_cpu_ns = 0;
  uint64_t sleeps = 0;
  uint64_t wake_ups = 0;
  uint64_t parked = 0;  // sources that fell silent, and are watched by their eventfd alone
  uint64_t unparked = 0;
  uint64_t io_uring_enters = 0;
};

}  // namespace ringside
