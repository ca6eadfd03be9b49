// What KVM itself counts of a vCPU: exits that it deals with in the kernel show nowhere else.
//
// Threads: one at a time; the vCPU may run meanwhile.
// Limits: a few counters that tell where a guest's time goes. Which of them there are, and what
// exactly they count, is up to the host's KVM.
// Spec: Linux Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "ringside/statistics.h"

namespace ringside {

class KvmStats {
 public:
  // Reads the layout behind a descriptor that KVM_GET_STATS_FD gave.
  static absl::StatusOr<KvmStats> Open(UniqueFd fd);

  // The counters as they are now; what cannot be read is left out.
  std::vector<KernelCount> Read() const;

 private:
  struct Place {
    const char* name;
    int64_t offset;  // in the file
  };

  explicit KvmStats(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::vector<Place> places_;
};

}  // namespace ringside
