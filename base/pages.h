// Pages of x86-64, the guest's and the host's alike.
#pragma once

#include <cstdint>

namespace ringside {

inline constexpr uint64_t kPageSize = 4096;

constexpr uint64_t PageDown(uint64_t address) {
  return address & ~(kPageSize - 1);
}

constexpr uint64_t PageUp(uint64_t address) {
  return PageDown(address + kPageSize - 1);
}

}  // namespace ringside
