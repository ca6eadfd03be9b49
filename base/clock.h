// The clocks that all of Ringside measures with.
#pragma once

#include <cstdint>
#include <ctime>

namespace ringside {

inline int64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline int64_t MonotonicNs() {
  return ClockNs(CLOCK_MONOTONIC);
}

// What this thread has had. A system call, unlike the other.
inline int64_t ThreadCpuNs() {
  return ClockNs(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace ringside
