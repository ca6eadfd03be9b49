// From requests to commands, but for the simplest, which are in nvme_channel.cc.

#include <algorithm>
#include <cstring>
#include <utility>

#include "block/nvme_channel.h"

namespace ringside {

// The slot's next command: as much of a transfer as one takes. 0: none, until a bounce buffer is
// given back.
uint32_t NvmeChannel::FillTransfer(Slot& slot, const BlockRequest& request,
                                   const SegmentCursor& cursor, uint64_t offset, uint64_t left) {
  nvme::Command& command = slot.command;
  uint32_t control = 0;
  Prps data;
  if (request.op == BlockOp::kWriteZeroes) {
    command.opcode = static_cast<uint8_t>(nvme::IoOp::kWriteZeroes);
    const uint64_t most = uint64_t{nvme::kMaxBlocks} << block_shift_;
    data.bytes = static_cast<uint32_t>(std::min(left, most));
    if (request.unmap) control |= nvme::kDeallocate;
  } else {
    uint64_t most = std::min<uint64_t>(left, ns_.most_bytes);
    if (ns_.boundary != 0) most = std::min(most, ns_.boundary - offset % ns_.boundary);
    data = FillData(slot, request, cursor, static_cast<uint32_t>(most));
    if (data.bytes == 0) return 0;
    command.opcode =
        static_cast<uint8_t>(request.op == BlockOp::kRead ? nvme::IoOp::kRead : nvme::IoOp::kWrite);
  }
  if (request.durable && request.op != BlockOp::kRead && ns_.volatile_cache) {
    control |= nvme::kForceUnitAccess;
  }
  command.prp1 = data.prp1;
  command.prp2 = data.prp2;
  FillRange(command, offset, data.bytes, control);
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
  const nvme::DsmRange range = {
      .attributes = 0,
      .blocks = static_cast<uint32_t>(std::min<uint64_t>(bytes >> block_shift_, UINT32_MAX)),
      .start = offset >> block_shift_};
  std::memcpy(list.data(), &range, sizeof range);
  nvme::Command& command = slot.command;
  command.opcode = static_cast<uint8_t>(nvme::IoOp::kDatasetManagement);
  command.prp1 = queue_.IovaOf(&list);
  command.prp2 = 0;
  command.cdw10 = 0;  // one range
  command.cdw11 = nvme::kDsmDeallocate;
  command.cdw12 = 0;
}

void NvmeChannel::GiveBackBounce(Slot& slot, int result) {
  const BlockRequest& request = *slot.request;
  if (request.op == BlockOp::kRead && result == 0) {
    CopyToSegments(request.segments, slot.bounce_cursor, {slot.bounce, slot.bytes});
  }
  free_bounces_.push_back(std::exchange(slot.bounce, nullptr));
}

}  // namespace ringside
