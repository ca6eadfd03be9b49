// What the checks of saved state have in common. A state struct may come from anywhere, so Restore
// takes nothing that the device could not have saved.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace ringside {

// InvalidArgument if a bit is set that the register does not have.
inline absl::Status CheckBits(std::string_view name, uint64_t value, uint64_t bits) {
  if ((value & ~bits) == 0) return absl::OkStatus();
  return BadInput("the saved %s is %#x; no bits but %#x can be set", name, value, bits);
}

}  // namespace ringside
