// The processor's own counters, of one thread: what it executed and how long it took.
//
// Many virtual machines have none, and a container may forbid the kernel's half. What cannot be had
// is missing from the figures; WhyNot says why.
//
// Threads: Start and Stop on the thread that is measured.
// Source: perf_event_open(2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"

namespace ringside::benchmarks {

class PerfCounters {
 public:
  struct Figures {
    std::optional<uint64_t> instructions, cycles;  // in user space
    std::optional<uint64_t> kernel_instructions, kernel_cycles;
  };

  // Why user space's instructions cannot be counted here; empty if they can.
  static const std::string& WhyNot();

  void Start();
  Figures Stop();

 private:
  // The first leads the group: all of it counts at the same time or not at all.
  std::array<UniqueFd, 4> events_;
};

}  // namespace ringside::benchmarks
