// From requests to commands, but for the simplest, which are in nvme_channel.cc.

#include <algorithm>
#include <cstring>
#include <utility>

#include "nvme/nvme_channel.h"

namespace ringside {

// The slot's next command: as much of a transfer as one takes. 0: none, until a bounce buffer is
// given back.
uint32_t NvmeChannel::FillTransfer(Slot& slot, const BlockRequest& request,
                                   const SegmentCursor& cursor, uint64_t offset, uint64_t left) {
  const uint32_t most = nvme::MostOf(ns_, request.op, offset, left);
  Prps data = {.bytes = most};
  if (request.op != BlockOp::kWriteZeroes) data = FillData(slot, request, cursor, most);
  if (data.bytes == 0) return 0;
  slot.command.prp1 = data.prp1;
  slot.command.prp2 = data.prp2;
  nvme::SetTransfer(slot.command, ns_, block_shift_, request, offset, data.bytes);
  return data.bytes;
}

Prps NvmeChannel::FillData(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                           uint32_t most) {
  PrpList& list = ListOf(slot);
  const Prps prps = BuildPrps(request.segments, cursor, most, ns_.block_size, offsets_, list,
                              queue_.IovaOf(&list));
  if (prps.bytes != 0) [[likely]]
    return prps;
  return FillBounce(slot, request, cursor, most);
}

Prps NvmeChannel::FillBounce(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                             uint32_t most) {
  if (free_bounces_.empty()) return {};
  std::byte* bounce = free_bounces_.back();
  free_bounces_.pop_back();
  const uint32_t bytes = std::min<uint32_t>(most, NvmeQueue::kBounceSize);
  if (request.op == BlockOp::kWrite) CopyFromSegments(request.segments, cursor, {bounce, bytes});
  slot.bounce = bounce;
  slot.bounce_cursor = cursor;
  slot.bytes = bytes;
  counters_.bounced.Add();
  PrpList& list = ListOf(slot);
  return BuildPrps(queue_.IovaOf(bounce), bytes, list, queue_.IovaOf(&list));
}

void NvmeChannel::FillDiscard(Slot& slot, uint64_t offset, uint64_t bytes) {
  PrpList& list = ListOf(slot);
  const nvme::DsmRange range = nvme::RangeOf(block_shift_, offset, bytes);
  std::memcpy(list.data(), &range, sizeof range);
  slot.command.prp1 = queue_.IovaOf(&list);
  slot.command.prp2 = 0;
  nvme::SetDeallocate(slot.command);
}

void NvmeChannel::FillFlush(Slot& slot) {
  slot.command.prp1 = slot.command.prp2 = 0;
  nvme::SetFlush(slot.command);
}

void NvmeChannel::GiveBackBounce(Slot& slot, int result) {
  const BlockRequest& request = *slot.request;
  if (request.op == BlockOp::kRead && result == 0) {
    CopyToSegments(request.segments, slot.bounce_cursor, {slot.bounce, slot.bytes});
  }
  free_bounces_.push_back(std::exchange(slot.bounce, nullptr));
}

}  // namespace ringside
