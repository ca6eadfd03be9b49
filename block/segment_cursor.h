// Where in a request's segments a transfer goes on.
//
// Threads: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "block/block_device.h"

namespace ringside {

struct SegmentCursor {
  size_t segment = 0;
  uint32_t skip = 0;  // bytes of it

  // By no more than there is.
  void Advance(std::span<const Segment> segments, uint64_t bytes);
};

// Between the bytes from the cursor on and one piece of memory.
void CopyFromSegments(std::span<const Segment> segments, const SegmentCursor& cursor,
                      std::span<std::byte> memory);
void CopyToSegments(std::span<const Segment> segments, const SegmentCursor& cursor,
                    std::span<const std::byte> memory);

}  // namespace ringside
