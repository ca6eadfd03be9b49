// A request on its way through an overlay that cannot go straight to one file, and what it asks of
// the files below.
//
// Threads: its channel's. What the device's lock guards is named; the channels' threads share it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "block/block_device.h"
#include "block/segment_cursor.h"
#include "overlay/overlay_format.h"

namespace ringside {

class OverlayChannel;
struct OverlayOp;

// A request of the overlay's to a file below it.
struct OverlayChild : BlockRequest {
  OverlayOp* op = nullptr;
  OverlayChild* next_free = nullptr;
};

// Two blocks: those that a write or a discard has a part of, at its first and its last end.
struct CopyBuffer {
  alignas(kOverlayBlock) std::array<std::byte, 2 * kOverlayBlock> bytes;
};

// What a discard or a write of zeroes has to do.
struct ZeroedParts {
  struct Edge {
    uint64_t block;
    uint64_t from;  // bytes of the block
    uint64_t to;
  };
  std::array<Edge, 2> list = {};  // blocks that it has a part of, by their places in the copies
  size_t edges = 0;
  uint64_t whole_first = 0;  // blocks that are zeroed whole
  uint64_t whole_end = 0;
};

struct OverlayOp {
  using Step = void (OverlayChannel::*)(OverlayOp&);

  // What it waits for, if it does.
  enum class Wait : uint8_t { kNothing, kBlocks, kCommit, kBuffer };

  enum class Commit : uint8_t { kNone, kNext, kUnderWay };

  OverlayChannel* channel = nullptr;
  BlockRequest* request = nullptr;
  Step then = nullptr;    // comes when all children have ended, or what it waits for has come
  uint32_t children = 0;  // under way
  int result = 0;         // 0, or the first error so far

  uint64_t length = 0;  // bytes of the request

  // Where a read or a discard goes on: a byte of the disk, or a block.
  uint64_t at = 0;
  SegmentCursor cursor;
  std::vector<Segment> few;                    // segments of the children
  std::unique_ptr<std::vector<Segment>> many;  // in its place, if there may be more: the channel's
  std::vector<Segment>& segments() { return many != nullptr ? *many : few; }

  uint64_t first = 0;  // blocks [first, end) that it touches
  uint64_t end = 0;

  // A write or zeroes.
  ZeroedParts parts;
  uint64_t reserved = 0;  // blocks, of the limit
  bool holds_blocks = false;
  CopyBuffer* copies = nullptr;
  std::array<Segment, 2> fills = {};  // of children that read or write these

  // Under the device's lock.
  uint32_t blockers = 0;    // those before it that hold blocks of its
  bool is_outside = false;  // waits to be let in among those: see BusyBlocks
  OverlayOp* before = nullptr;
  OverlayOp* after = nullptr;

  Wait wait = Wait::kNothing;
  size_t place = 0;  // among its channel's that wait
  bool leads_commit = false;
  Commit commit = Commit::kNone;   // for which it waits; under the device's lock
  OverlayOp* previous = nullptr;   // in a WaitList
  OverlayOp* next = nullptr;       // in whatever list it waits
  OverlayOp* next_free = nullptr;  // in its pool
};

}  // namespace ringside
