// Discards, and writes of zeroes that may give space back: whole blocks become zeroes in the map,
// never the base's again, and what a request has of a block in part is written.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "overlay/overlay_channel.h"

namespace ringside {

ZeroedParts OverlayChannel::PartsOf(const Op& op) const {
  ZeroedParts parts;
  const uint64_t from = op.request->offset;
  const uint64_t to = EndByte(op);
  parts.whole_first = OverlayBlocks(from);
  // The last block of the disk may be a part of one, and is whole.
  parts.whole_end = to == info_.size ? op.end : to / kOverlayBlock;
  if (from % kOverlayBlock != 0) {
    const uint64_t start = op.first * kOverlayBlock;
    parts.list[parts.edges++] = {
        .block = op.first, .from = from - start, .to = std::min(kOverlayBlock, to - start)};
  }
  const bool has_tail = parts.whole_end != op.end;
  if (has_tail && (parts.edges == 0 || op.end - op.first > 1)) {
    parts.list[parts.edges++] = {.block = op.end - 1, .from = 0, .to = to % kOverlayBlock};
  }
  parts.whole_end = std::max(parts.whole_end, parts.whole_first);  // all of it is in one block
  return parts;
}

void OverlayChannel::FillEdges(Op& op) {
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  if (op.result != 0) return Abandon(op, op.result);
  op.at = op.parts.whole_first;
  if (op.parts.edges == 0) return ZeroWhole(op);
  if (!TakeCopies(op, &OverlayChannel::FillEdges)) return;
  op.then = &OverlayChannel::ZeroEdges;
  for (size_t i = 0; i < op.parts.edges; ++i) {
    const uint64_t block = op.parts.list[i].block;
    if (StateOf(block) == BlockState::kBase) FillBlock(op, block, i);
  }
  if (op.children == 0) ZeroEdges(op);
}

void OverlayChannel::ZeroEdges(Op& op) {
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  if (op.result != 0) return Abandon(op, op.result);
  op.then = &OverlayChannel::EdgesZeroed;
  for (size_t i = 0; i < op.parts.edges; ++i) {
    const ZeroedParts::Edge& edge = op.parts.list[i];
    const BlockState state = StateOf(edge.block);
    if (state == BlockState::kZeroes) continue;
    std::byte* const copy = op.copies->bytes.data() + i * kOverlayBlock;
    std::memset(copy + edge.from, 0, edge.to - edge.from);
    const bool whole = state == BlockState::kBase;
    const uint64_t from = whole ? 0 : edge.from;
    const uint64_t to = whole ? kOverlayBlock : edge.to;
    op.fills[i] = {.host = copy + from, .length = static_cast<uint32_t>(to - from), .region = 0};
    SubmitChild(op, *file_, BlockOp::kWrite, data_offset_ + edge.block * kOverlayBlock + from,
                {&op.fills[i], 1});
  }
  if (op.children == 0) EdgesZeroed(op);
}

void OverlayChannel::EdgesZeroed(Op& op) {
  const std::span edges = std::span(op.parts.list).first(op.parts.edges);
  if (op.result != 0) {
    {
      const MutexLock lock(state_.mutex);
      for (const ZeroedParts::Edge& edge : edges) {
        state_.map->MayDiffer(edge.block, edge.block + 1);
      }
    }
    return Abandon(op, op.result);
  }
  {
    const MutexLock lock(state_.mutex);
    for (const ZeroedParts::Edge& edge : edges) {
      if (StateOf(edge.block) == BlockState::kZeroes) continue;
      state_.map->SetHere(edge.block, edge.block + 1);
    }
    state_.reserved_blocks -= op.reserved;
    op.reserved = 0;
  }
  GiveCopies(op);
  ZeroWhole(op);
}

// The map first: whoever writes to such a block meanwhile waits for its turn. If the power fails
// before a commit, blocks that were here are so again, and read as zeroes if they were punched.
void OverlayChannel::ZeroWhole(Op& op) {
  if (op.result == -EOPNOTSUPP) op.result = 0;  // the space is not given back, and the rest holds
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  if (op.result != 0) return Abandon(op, op.result);
  const uint64_t from = op.at;
  Turn& turn = ThisTurn();
  const uint64_t left = kBlocksATurn - std::min(turn.discarded, kBlocksATurn);
  const uint64_t to = std::min(op.parts.whole_end, from + std::max(left, kLeastBlocks));
  uint64_t here = 0;
  {
    const MutexLock lock(state_.mutex);
    if (from == to) {
      LeaveBlocks(op);
    } else {
      here = map_.CountHere(from, to);
      state_.map->SetZeroes(from, to);
    }
  }
  if (from == to) return Changed(op);
  op.at = to;
  turn.discarded += to - from;
  if (here == 0) return Later(op, &OverlayChannel::ZeroWhole);
  op.then = &OverlayChannel::ZeroWhole;
  SubmitRange(op, BlockOp::kDiscard, from * kOverlayBlock, (to - from) * kOverlayBlock);
}

}  // namespace ringside
