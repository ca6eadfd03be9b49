// A piece of guest memory that an I/O reads into or writes from.
//
// Ownership: the memory belongs to whoever made the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringside {

struct Segment {
  std::byte* host;
  uint32_t length;  // bytes
  uint16_t region;  // which guest memory region it lies in: what a DMA address is made from
};

inline uint64_t TotalLength(std::span<const Segment> segments) {
  uint64_t total = 0;
  for (const Segment& segment : segments) total += segment.length;
  return total;
}

}  // namespace ringside
