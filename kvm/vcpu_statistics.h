// How often a vCPU has left the guest, and why.
#pragma once

#include <cstdint>
#include <vector>

namespace ringside {

struct ExitCount {
  const char* reason;
  uint64_t count;
};

struct KernelCount {
  const char* name;  // KVM's own
  uint64_t count;
};

struct VcpuStatistics {
  std::vector<ExitCount> exits;           // returns of KVM_RUN, by reason
  std::vector<KernelCount> kernel_exits;  // what KVM counts; empty: this host's does not
};

}  // namespace ringside
