// The host's CPUs, as a test sees them.
#pragma once

#include <sched.h>
#include <sys/types.h>
#include <vector>

namespace ringside::testing {

// On which the thread may run; 0: this one.
inline std::vector<int> AllowedCpus(pid_t thread = 0) {
  cpu_set_t set;
  sched_getaffinity(thread, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace ringside::testing
