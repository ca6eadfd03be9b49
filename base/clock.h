// The clock that all of Ringside measures with.
#pragma once

#include <cstdint>
#include <ctime>

namespace ringside {

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ringside
