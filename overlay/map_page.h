// A page of the block map as it is in the file: sealed, and chosen of its two slots.
//
// Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "overlay/overlay_format.h"

namespace ringside {

// Sets its checksum: last, before it is written.
void SealPage(MapPage& page);

// What pages of a file are judged by.
struct PageRules {
  explicit PageRules(const OverlayHeader& header)
      : epoch(header.epoch),
        period(header.period),
        blocks(OverlayBlocks(header.size)),
        may_be_torn((header.flags & OverlayHeader::kInUse) != 0) {}

  uint32_t epoch;
  uint32_t period;
  uint64_t blocks;   // of the disk: no bit is set beyond
  bool may_be_torn;  // the file was not closed: the last write of each page may have been cut off
};

struct ChosenPage {
  std::optional<unsigned> slot;  // that counts; nothing: all blocks of the page show the base
  bool is_torn = false;          // the other slot, which is to be written anew
  bool is_corrupt = false;       // the page cannot be relied on
};
ChosenPage ChoosePage(const std::array<MapPage, 2>& slots, uint64_t number, const PageRules& rules);

}  // namespace ringside
