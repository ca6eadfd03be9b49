// The --disk option: "path=FILE,key=value,..." or "type=null,size=SIZE,...".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "vmm/disks.h"

namespace ringside {

// A comma in a value is written twice.
absl::StatusOr<DiskConfig> ParseDisk(const std::string& text);

}  // namespace ringside
