// Writes to an overlay that are more than a write to its file.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "overlay/overlay_channel.h"

namespace ringside {

void OverlayChannel::BeginChange(Op& op) {
  state_.Change();
  const BlockOp what = op.request->op;
  const bool keeps_blocks =
      what == BlockOp::kWrite || (what == BlockOp::kWriteZeroes && !op.request->unmap);
  if (keeps_blocks && map_.AreWritable(op.first, op.end)) return WriteDurably(op);
  counters_.slow_writes.Add();
  op.holds_blocks = true;
  bool has_turn;
  {
    const MutexLock lock(state_.mutex);
    has_turn = state_.busy.Enter(op);
  }
  if (has_turn) return Change(op);
  counters_.waits.Add();
  Waits(op, Op::Wait::kBlocks, &OverlayChannel::Change);
}

void OverlayChannel::Change(Op& op) {
  if (GivesUp(op)) return Abandon(op, -ECANCELED);
  const bool writes = op.request->op == BlockOp::kWrite;
  uint64_t new_blocks = 0;
  bool wants_intents;
  {
    const MutexLock lock(state_.mutex);
    if (writes) {
      new_blocks = op.end - op.first - map_.CountHere(op.first, op.end);
    } else {
      op.parts = PartsOf(op);
      for (size_t i = 0; i < op.parts.edges; ++i) {
        if (StateOf(op.parts.list[i].block) == BlockState::kBase) ++new_blocks;
      }
    }
    if (state_.IsBeyondLimit(new_blocks)) {
      op.result = -ENOSPC;
    } else {
      op.reserved = new_blocks;
      state_.reserved_blocks += new_blocks;
    }
    wants_intents = op.result == 0 && state_.map->WantIntents(op.first, op.end);
  }
  if (op.result != 0) return Abandon(op, op.result);
  const Op::Step then = writes ? &OverlayChannel::FillEnds : &OverlayChannel::FillEdges;
  if (wants_intents) return WantCommit(op, then);
  (this->*then)(op);
}

// What the write has not of its first and its last block.
void OverlayChannel::FillEnds(Op& op) {
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  if (op.result != 0) return Abandon(op, op.result);
  const bool has_head = op.request->offset % kOverlayBlock != 0;
  const bool has_tail = EndByte(op) % kOverlayBlock != 0;
  const uint64_t last = op.end - 1;
  const bool fills_head =
      (has_head || (has_tail && op.first == last)) && StateOf(op.first) != BlockState::kHere;
  const bool fills_tail = has_tail && op.first != last && StateOf(last) != BlockState::kHere;
  if (!fills_head && !fills_tail) return WriteData(op);
  if (!TakeCopies(op, &OverlayChannel::FillEnds)) return;
  op.then = &OverlayChannel::WriteData;
  if (fills_head) FillBlock(op, op.first, 0);
  if (fills_tail) FillBlock(op, last, 1);
  if (op.children == 0) WriteData(op);
}

// With what a guest reads there now.
void OverlayChannel::FillBlock(Op& op, uint64_t block, size_t place) {
  counters_.copies.Add();
  std::byte* const to = op.copies->bytes.data() + place * kOverlayBlock;
  const uint64_t offset = block * kOverlayBlock;
  uint64_t from_base = 0;
  if (StateOf(block) == BlockState::kBase && base_ != nullptr && offset < state_.base_bytes) {
    from_base = std::min(kOverlayBlock, state_.base_bytes - offset);
  }
  std::memset(to + from_base, 0, kOverlayBlock - from_base);
  if (from_base == 0) return;
  counters_.base_reads.Add();
  op.fills[place] = {.host = to, .length = static_cast<uint32_t>(from_base), .region = 0};
  SubmitChild(op, *base_, BlockOp::kRead, offset, {&op.fills[place], 1});
}

void OverlayChannel::WriteData(Op& op) {
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  if (op.result != 0) return Abandon(op, op.result);
  uint64_t from = op.request->offset;
  const uint64_t to = EndByte(op);
  const std::span guest = op.request->segments;
  op.then = &OverlayChannel::DataWritten;
  if (op.copies == nullptr)
    return SubmitChild(op, *file_, BlockOp::kWrite, data_offset_ + from, guest);
  std::byte* const copies = op.copies->bytes.data();
  std::vector<Segment>& segments = EmptyList(op);
  const bool one_block = op.end - op.first == 1;
  if (from % kOverlayBlock != 0 && StateOf(op.first) != BlockState::kHere) {
    const auto head = static_cast<uint32_t>(from % kOverlayBlock);
    segments.push_back({.host = copies, .length = head, .region = 0});
    from -= head;
  }
  segments.insert(segments.end(), guest.begin(), guest.end());
  if (to % kOverlayBlock != 0 && StateOf(op.end - 1) != BlockState::kHere) {
    const uint64_t used = to % kOverlayBlock;
    segments.push_back({.host = copies + (one_block ? 0 : kOverlayBlock) + used,
                        .length = static_cast<uint32_t>(kOverlayBlock - used),
                        .region = 0});
  }
  SubmitChild(op, *file_, BlockOp::kWrite, data_offset_ + from, segments);
}

void OverlayChannel::DataWritten(Op& op) {
  if (op.result != 0) {
    {
      const MutexLock lock(state_.mutex);
      state_.map->MayDiffer(op.first, op.end);
    }
    return Abandon(op, op.result);
  }
  {
    const MutexLock lock(state_.mutex);
    state_.map->SetHere(op.first, op.end);
    LeaveBlocks(op);
  }
  GiveCopies(op);
  Changed(op);
}

// What was asked for is in place. A commit flushes the data, too.
void OverlayChannel::Changed(Op& op) {
  if (op.request->durable && state_.keeps_map) return WantCommit(op, &OverlayChannel::Finish);
  Finish(op);
}

// To blocks that need nothing else; what has made them so may not be durable yet.
void OverlayChannel::WriteDurably(Op& op) {
  const BlockRequest& request = *op.request;
  op.then = &OverlayChannel::WrittenDurably;
  OverlayChild& child = NewChild(op, request.op, data_offset_ + request.offset);
  child.durable = request.durable;
  child.length = request.length;
  child.segments = request.segments;
  file_->Submit(child);
}

void OverlayChannel::WrittenDurably(Op& op) {
  bool is_pending = false;
  if (op.result == 0 && op.request->durable && state_.keeps_map) {
    const MutexLock lock(state_.mutex);
    is_pending = state_.map->IsPending(op.first, op.end);
  }
  if (is_pending) return WantCommit(op, &OverlayChannel::Finish);
  Finish(op);
}

void OverlayChannel::Abandon(Op& op, int result) {
  op.result = result;
  {
    const MutexLock lock(state_.mutex);
    LeaveBlocks(op);
  }
  Finish(op);
}

void OverlayChannel::LeaveBlocks(Op& op) {
  state_.reserved_blocks -= op.reserved;
  op.reserved = 0;
  if (!op.holds_blocks) return;
  op.holds_blocks = false;
  state_.busy.Leave(op, [](Op& ready) { ready.channel->Wake(ready); });
}

// False: all are in use, and it goes on with `then` when it has one.
bool OverlayChannel::TakeCopies(Op& op, Op::Step then) {
  if (op.copies != nullptr) return true;
  if (free_copies_.empty() && all_copies_.size() < kMostCopies) {
    all_copies_.push_back(std::make_unique<CopyBuffer>());
    free_copies_.push_back(all_copies_.back().get());
  }
  if (free_copies_.empty()) {
    Waits(op, Op::Wait::kBuffer, then);
    want_copies_.Push(op);
    return false;
  }
  op.copies = free_copies_.back();
  free_copies_.pop_back();
  return true;
}

void OverlayChannel::GiveCopies(Op& op) {
  if (op.copies == nullptr) return;
  free_copies_.push_back(op.copies);
  op.copies = nullptr;
  Op* const next = want_copies_.Pop();
  if (next == nullptr) return;
  WaitsNoMore(*next);
  next->copies = free_copies_.back();
  free_copies_.pop_back();
  Later(*next, next->then);
}

}  // namespace ringside
