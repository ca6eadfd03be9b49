// The --disk option: "path=FILE,key=value,...", "type=null,size=SIZE,...",
// "nvme://0000:00:04.0/1,key=value,...", "nvme+user:///run/ctrl.sock/1,key=value,..." or
// "/dev/ng0n1,key=value,...".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "vmm/disks.h"

namespace ringside {

// A comma in a value is written twice.
absl::StatusOr<DiskConfig> ParseDisk(const std::string& text);

}  // namespace ringside
