#include "base/affinity.h"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {
namespace {

// As many CPUs as the kernel can be built for.
constexpr int kMaxCpus = 8192;

class CpuSet {
 public:
  CpuSet() { CPU_ZERO_S(kBytes, set()); }
  void Add(int cpu) { CPU_SET_S(static_cast<size_t>(cpu), kBytes, set()); }
  bool Has(int cpu) const { return CPU_ISSET_S(static_cast<size_t>(cpu), kBytes, sets_); }
  cpu_set_t* set() { return sets_; }
  static constexpr size_t kBytes = kMaxCpus / 8;

 private:
  cpu_set_t sets_[kBytes / sizeof(cpu_set_t)];
};

}  // namespace

absl::Status CheckHostCpus(std::span<const int> cpus) {
  if (cpus.empty()) return absl::OkStatus();
  CpuSet allowed;
  if (sched_getaffinity(0, CpuSet::kBytes, allowed.set()) != 0) {
    return ErrnoError(errno, "cannot tell which CPUs may be used");
  }
  const long configured = sysconf(_SC_NPROCESSORS_CONF);
  for (size_t i = 0; i < cpus.size(); ++i) {
    const int cpu = cpus[i];
    if (cpu < 0 || cpu >= kMaxCpus || cpu >= configured) {
      return BadInput("CPU %d does not exist: this host has 0 to %d", cpu, configured - 1);
    }
    if (!allowed.Has(cpu)) {
      return BadInput(
          "CPU %d is not allowed to this process; see 'taskset -cp $$' for those that "
          "are",
          cpu);
    }
    if (std::ranges::count(cpus, cpu) > 1) return BadInput("CPU %d is named twice", cpu);
  }
  return absl::OkStatus();
}

absl::Status PinThisThread(std::span<const int> cpus) {
  if (cpus.empty()) return absl::OkStatus();
  CpuSet set;
  for (const int cpu : cpus) set.Add(cpu);
  if (sched_setaffinity(0, CpuSet::kBytes, set.set()) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot keep a thread on CPU %d", cpus.front()));
  }
  return absl::OkStatus();
}

}  // namespace ringside
