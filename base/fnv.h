// A hash that stays as it is, on every host and in every version: FNV-1a of 64 bits. Not for tables
// whose keys an enemy chooses.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringside {

inline uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * uint64_t{0x100000001b3};
  return hash;
}

}  // namespace ringside
