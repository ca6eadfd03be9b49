// Segments as an NVMe controller is told of them: PRP entries, each a page, of which only the first
// may begin and only the last may end within a page.
//
// Threads: none of its own. Spec: NVM Express Base Specification 2.0, section 4.1.1.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "block/segment_cursor.h"
#include "nvme/nvme_spec.h"

namespace ringside {

// The list that PRP2 points to where there are more than two entries: aligned to its size, so it
// lies in one page.
using PrpList = std::array<uint64_t, 128>;
// What such a list reaches wherever in a page it begins.
inline constexpr uint32_t kMostPrpBytes = sizeof(PrpList) / sizeof(uint64_t) * nvme::kPageSize;

struct Prps {
  uint64_t prp1 = 0;
  uint64_t prp2 = 0;
  // How much they reach: a multiple of the block size, as far as PRP can express. 0: not even a
  // block, so it must be copied.
  uint32_t bytes = 0;
};

// From the cursor on, at most `most` bytes: a multiple of `block`, not above kMostPrpBytes.
Prps BuildPrps(std::span<const Segment> segments, const SegmentCursor& cursor, uint32_t most,
               uint32_t block, const uint64_t* iova_offsets, PrpList& list, uint64_t list_iova);

// Of memory that the device sees as one.
Prps BuildPrps(uint64_t iova, uint32_t bytes, PrpList& list, uint64_t list_iova);

}  // namespace ringside
