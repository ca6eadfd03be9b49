// Segments as the kernel is told of them for an NVMe command: a vector of buffers, which it maps
// where it can and copies where it must.
//
// Threads: none of its own. Spec: Linux 6.1, blk_rq_map_user_iov: buffers are copied if one of
// their addresses or lengths is not aligned as the device asks for, or if two meet in the middle of
// a page; more than the queue's segments or bytes are refused.
#pragma once

#include <cstdint>
#include <span>
#include <sys/uio.h>

#include "block/segment_cursor.h"

namespace ringside {

struct NvmeVectorLimits {
  uint32_t most_bytes;  // a multiple of the block
  uint32_t most_pages;  // that buffers lie in: each may become a segment of the queue's
  uint32_t block_size;
  uint32_t alignment;  // of addresses and lengths, for buffers that are not copied; a power of two
};

struct NvmeVectors {
  unsigned count = 0;
  // A multiple of the block. 0: not even a block of them is within the limits.
  uint32_t bytes = 0;
  bool copied = false;  // the kernel does not map them
};

// From the cursor on.
NvmeVectors BuildVectors(std::span<const Segment> segments, const SegmentCursor& cursor,
                         const NvmeVectorLimits& limits, std::span<iovec> vectors);

}  // namespace ringside
