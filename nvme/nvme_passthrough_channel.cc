#include "nvme/nvme_passthrough_channel.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<NvmePassthroughChannel>> NvmePassthroughChannel::Create(
    const Parts& parts) {
  absl::StatusOr<EventFd> wake = EventFd::Create();
  if (!wake.ok()) {
    parts.counters.taken.store(false, std::memory_order_release);
    return wake.status();
  }
  std::unique_ptr<NvmePassthroughChannel> channel(
      new NvmePassthroughChannel(parts, *std::move(wake)));
  RINGSIDE_RETURN_IF_ERROR(channel->MakeBounce());
  RINGSIDE_RETURN_IF_ERROR(channel->Connect());
  return channel;
}

NvmePassthroughChannel::NvmePassthroughChannel(const Parts& parts, EventFd wake)
    : NvmeRequests(parts.io_thread, parts.ns, parts.counters),
      limits_(parts.limits),
      file_(parts.file),
      wake_(std::move(wake)) {
  for (Slot& slot : slots_) {
    slot.channel = this;
    slot.command.nsid = ns_.id;
    AddSlot(slot);
  }
}

// One at least: who finds none waits for one.
absl::Status NvmePassthroughChannel::MakeBounce() {
  std::byte* bounce = memory_.bounce.Take();
  if (bounce == nullptr) return absl::ResourceExhaustedError("no memory for a bounce buffer");
  memory_.bounce.Give(bounce);
  return absl::OkStatus();
}

absl::Status NvmePassthroughChannel::Connect() {
  Uring* const threads = io_thread_.uring();
  if (threads != nullptr && threads->takes_commands()) {
    RINGSIDE_ASSIGN_OR_RETURN(registered_file_, threads->RegisterFile(file_));
    shared_ring_ = threads;
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(ring_, NvmeCommandRing::Create(file_, wake_.fd(), kSlots));
  return io_thread_.Attach(completions_, Phase::kComplete);
}

NvmePassthroughChannel::~NvmePassthroughChannel() {
  if (shared_ring_ != nullptr) shared_ring_->UnregisterFile(registered_file_);
  io_thread_.Detach(completions_);  // does nothing if it never was attached
  counters_.taken.store(false, std::memory_order_release);
}

void NvmePassthroughChannel::Submit(BlockRequest& request) {
  // Behind those that wait already: nobody is overtaken for ever.
  if (must_wait_ || free_ == nullptr) [[unlikely]]
    return Wait(request);
  if (FillOne(*free_, request)) [[likely]]
    return Send(TakeSlot(request, nullptr));
  Start(request);
}

// Most requests: one segment that one command takes, without a copy. False if this is no such one;
// Start does them all. What is beyond the end the controller refuses.
bool NvmePassthroughChannel::FillOne(Slot& slot, const BlockRequest& request) {
  if (request.op > BlockOp::kWrite || request.segments.size() != 1) return false;
  const Segment& segment = request.segments.front();
  const uint64_t length = segment.length;
  const uint64_t address = reinterpret_cast<uint64_t>(segment.host);
  // One page less than there may be: it begins within one.
  const bool simple = (address & (limits_.alignment - 1)) == 0 && length != 0 &&
                      length <= limits_.most_bytes &&
                      length <= (limits_.most_pages - uint64_t{1}) * nvme::kPageSize &&
                      ((request.offset | length) & (ns_.block_size - 1)) == 0 && ns_.boundary == 0;
  if (!simple || (request.op == BlockOp::kWrite && ns_.info.read_only)) return false;
  SetData(slot, segment.host, segment.length);
  nvme::SetTransfer(slot.command, ns_, block_shift_, request, request.offset, length);
  return true;
}

// The slot's next command: as much of a transfer as one takes. 0: none, until a bounce buffer is
// given back.
uint32_t NvmePassthroughChannel::FillTransfer(Slot& slot, const BlockRequest& request,
                                              const SegmentCursor& cursor, uint64_t offset,
                                              uint64_t left) {
  uint32_t bytes = nvme::MostOf(ns_, request.op, offset, left);
  if (request.op == BlockOp::kWriteZeroes) {
    SetData(slot, nullptr, 0);
  } else {
    bytes = FillData(slot, request, cursor, bytes);
  }
  if (bytes != 0) nvme::SetTransfer(slot.command, ns_, block_shift_, request, offset, bytes);
  return bytes;
}

uint32_t NvmePassthroughChannel::FillData(Slot& slot, const BlockRequest& request,
                                          const SegmentCursor& cursor, uint32_t most) {
  NvmeVectorLimits limits = limits_;
  limits.most_bytes = std::min(limits.most_bytes, most);
  std::span<iovec> room = slot.vectors;
  if (request.segments.size() - cursor.segment > room.size()) {
    if (slot.block == nullptr) slot.block = &memory_.vectors.Take();
    room = slot.block->vectors;
  }
  const NvmeVectors built = BuildVectors(request.segments, cursor, limits, room);
  if (built.bytes == 0) return FillBounce(slot, request, cursor, most);
  if (built.copied) counters_.bounced.Add();
  if (built.count == 1) {
    SetData(slot, room[0].iov_base, built.bytes);
  } else {
    SetData(slot, room.data(), built.count);
    slot.operation = NVME_URING_CMD_IO_VEC;
  }
  return built.bytes;
}

uint32_t NvmePassthroughChannel::FillBounce(Slot& slot, const BlockRequest& request,
                                            const SegmentCursor& cursor, uint32_t most) {
  slot.bounce = memory_.bounce.Take();
  if (slot.bounce == nullptr) return 0;
  // In one page less than there may be: those of a buffer are whole.
  const uint64_t reach = (limits_.most_pages - uint64_t{1}) * nvme::kPageSize;
  const auto bytes = static_cast<uint32_t>(std::min(
      {uint64_t{most}, uint64_t{limits_.most_bytes}, reach, uint64_t{BouncePool::kBufferSize}}));
  if (request.op == BlockOp::kWrite) {
    CopyFromSegments(request.segments, cursor, {slot.bounce, bytes});
  }
  slot.bounce_cursor = cursor;
  counters_.bounced.Add();
  SetData(slot, slot.bounce, bytes);
  return bytes;
}

void NvmePassthroughChannel::FillDiscard(Slot& slot, uint64_t offset, uint64_t bytes) {
  slot.range = nvme::RangeOf(block_shift_, offset, bytes);
  SetData(slot, &slot.range, sizeof slot.range);
  nvme::SetDeallocate(slot.command);
}

void NvmePassthroughChannel::FillFlush(Slot& slot) {
  SetData(slot, nullptr, 0);
  nvme::SetFlush(slot.command);
}

void NvmePassthroughChannel::SetData(Slot& slot, const void* address, uint32_t bytes) {
  slot.operation = NVME_URING_CMD_IO;
  slot.command.addr = reinterpret_cast<uint64_t>(address);
  slot.command.data_len = bytes;
}

void NvmePassthroughChannel::Send(Slot& slot) {
  ++slot.sends;
  counters_.commands.Add();
  to_send_.Push(slot);
  io_thread_.AtHandOver(hand_over_hook_);
}

void NvmePassthroughChannel::Cancel() {
  if (failed_) return;
  FailWaiting(-ECANCELED);
  // What no ring has yet none ever gets.
  to_send_.TakeEach([this](Slot& slot) { withdrawn_.Push(slot); });
  if (shared_ring_ != nullptr) {
    shared_ring_->CancelFile(registered_file_);
  } else {
    ring_->CancelAll();
  }
  io_thread_.AtHandOver(hand_over_hook_);
  io_thread_.AtPublish(withdrawn_hook_);
}

void NvmePassthroughChannel::FinishWithdrawn() {
  withdrawn_.TakeEach([this](Slot& slot) { Complete(slot, -ECANCELED); });
}

// What there is no room for is tried again in the next turn.
void NvmePassthroughChannel::PassOn() {
  while (!to_send_.empty()) {
    Slot& slot = *to_send_.front();
    if (!Push(slot)) break;
    to_send_.Pop();
  }
  const bool passed_on = shared_ring_ != nullptr || ring_->Enter(counters_.enters);
  if (!to_send_.empty() || !passed_on) io_thread_.AtHandOver(hand_over_hook_);
}

bool NvmePassthroughChannel::Push(Slot& slot) {
  if (shared_ring_ != nullptr) [[likely]] {
    return shared_ring_->PushCommand(registered_file_, slot.operation,
                                     std::as_bytes(std::span(&slot.command, 1)), slot);
  }
  return ring_->Push(slot.operation, slot.command, reinterpret_cast<uint64_t>(&slot));
}

void NvmePassthroughSlot::Complete(int32_t result) {
  channel->Complete(*this, result);
  if (channel->must_wait_) [[unlikely]]
    channel->GoOn();
}

void NvmePassthroughChannel::Reap() {
  ring_->Reap(counters_.enters, [this](uint64_t data, int32_t result) {
    if (data == NvmeCommandRing::kCancelling) [[unlikely]]
      return;
    Complete(*reinterpret_cast<Slot*>(data), result);
  });
  if (must_wait_) GoOn();
}

void NvmePassthroughChannel::Complete(Slot& slot, int32_t result) {
  if (result != 0) [[unlikely]] {
    if (SendAgain(slot, result)) return;
    result = result > 0 ? nvme::ErrnoOf(static_cast<nvme::Status>(result)) : result;
  }
  if (slot.bounce != nullptr || slot.block != nullptr) [[unlikely]]
    GiveBackMemory(slot, result);
  AddSlot(slot);
  Ended(slot, result);
}

// Errors after which a command may be sent again: those whose status does not forbid it, and what
// the kernel's driver says of commands that it took back for a reset or could not take.
[[gnu::noinline]] bool NvmePassthroughChannel::SendAgain(Slot& slot, int32_t result) {
  const bool may =
      result > 0 ? (result & nvme::kDoNotRetry) == 0 : result == -EINTR || result == -EAGAIN;
  if (!may || slot.sends >= nvme::kMostSends || failed_) return false;
  counters_.resent.Add();
  Send(slot);
  return true;
}

[[gnu::noinline]] void NvmePassthroughChannel::GiveBackMemory(Slot& slot, int result) {
  const BlockRequest& request = *slot.request;
  if (slot.bounce != nullptr) {
    if (request.op == BlockOp::kRead && result == 0) {
      CopyToSegments(request.segments, slot.bounce_cursor,
                     {slot.bounce, static_cast<size_t>(slot.command.data_len)});
    }
    memory_.bounce.Give(std::exchange(slot.bounce, nullptr));
  }
  if (slot.block != nullptr) memory_.vectors.Give(*std::exchange(slot.block, nullptr));
}

}  // namespace ringside
