// The --cpu-affinity option: "VCPU:CPUS,VCPU:CPUS", such as "0:2,1:3-4+6".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

// By vCPU, the host's CPUs; none for those that are not named. `cpus`: how many vCPUs there are.
absl::StatusOr<std::vector<std::vector<int>>> ParseCpuAffinity(const std::string& text,
                                                               uint32_t cpus);

}  // namespace ringside
