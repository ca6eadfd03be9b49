// The --iothread option: "poll=POLICY,max=TIME,grow=N,shrink=N".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "vmm/disks.h"

namespace ringside {

absl::StatusOr<IoThreadConfig> ParseIoThread(const std::string& text);

}  // namespace ringside
