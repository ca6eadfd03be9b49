// What disk=1 writes to a disk: every 8 bytes follow from the seed and their place. Also included
// by host programs that check an image from outside, so it is free of everything else.

#ifndef RINGSIDE_TESTS_GUEST_PATTERN_H_
#define RINGSIDE_TESTS_GUEST_PATTERN_H_

#include <cstdint>

namespace guest {

// The sectors disk=1 leaves written with its seed: as many as this, or the whole disk if it is
// smaller, and then whole blocks of it.
constexpr uint64_t kPatternSectors = 4096;

// The value of word `word` (0 to 63) of a sector.
constexpr uint64_t PatternWord(uint64_t seed, uint64_t sector, uint64_t word) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15 + sector * 64 + word;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_PATTERN_H_
