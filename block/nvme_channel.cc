#include "block/nvme_channel.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace ringside {
namespace {

int ErrnoOf(nvme::Status status) {
  switch (status & nvme::kStatusCode) {
    case nvme::kCapacityExceeded:
      return -ENOSPC;
    case nvme::kInvalidOpcode:
      return -EOPNOTSUPP;
    default:
      return -EIO;
  }
}

NvmeRing MakeRing(NvmeQueue& queue) {
  const NvmeQueue::Parts& parts = queue.parts();
  return NvmeRing({.submissions = queue.memory().submissions.data(),
                   .completions = queue.memory().completions.data(),
                   .entries = parts.entries,
                   .submission_doorbell = parts.submission_doorbell,
                   .completion_doorbell = parts.completion_doorbell});
}

}  // namespace

absl::StatusOr<std::unique_ptr<NvmeChannel>> NvmeChannel::Create(const Parts& parts) {
  std::unique_ptr<NvmeChannel> channel(new NvmeChannel(parts));
  RINGSIDE_RETURN_IF_ERROR(parts.io_thread.Attach(channel->completions_, Phase::kComplete));
  return channel;
}

NvmeChannel::NvmeChannel(const Parts& parts)
    : io_thread_(parts.io_thread),
      queue_(parts.queue),
      ns_(parts.ns),
      counters_(parts.counters),
      offsets_(parts.offsets),
      cache_lost_(parts.cache_lost),
      block_shift_(static_cast<unsigned>(std::countr_zero(parts.ns.block_size))),
      ring_(MakeRing(parts.queue)),
      slots_(parts.queue.parts().entries - size_t{1}) {
  for (Slot& slot : slots_) {
    slot.command.nsid = ns_.id;
    slot.next_free = free_;
    free_ = &slot;
  }
  for (auto& bounce : queue_.memory().bounces) free_bounces_.push_back(bounce.data());
  queue_.Open(*this);
}

NvmeChannel::~NvmeChannel() {
  io_thread_.Detach(completions_);  // does nothing if it never was attached
  queue_.Close();
}

void NvmeChannel::Submit(BlockRequest& request) {
  // Behind those that wait already: nobody is overtaken for ever.
  if (frozen_ || free_ == nullptr || !unfinished_.empty() || !waiting_.empty()) [[unlikely]] {
    if (failed_) return FinishLater(request, -EIO);
    waiting_.Push(request);
    return;
  }
  Start(request);
}

// There is a slot.
void NvmeChannel::Start(BlockRequest& request) {
  if (request.op == BlockOp::kFlush) return StartFlush(request, nullptr);
  const bool moves_data = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
  const uint64_t length = moves_data ? TotalLength(request.segments) : request.length;
  const int error = Check(request, length);
  if (error != 0 || length == 0) return FinishLater(request, error);
  if (request.op == BlockOp::kDiscard) return StartDiscard(request);
  StartTransfer(request, length);
}

// 0 or -errno.
int NvmeChannel::Check(const BlockRequest& request, uint64_t length) const {
  if (length > ns_.info.size || request.offset > ns_.info.size - length) return -EINVAL;
  if (request.op != BlockOp::kRead && ns_.info.read_only) return -EROFS;
  const bool whole_blocks = ((request.offset | length) & (ns_.block_size - 1)) == 0;
  return whole_blocks || request.op == BlockOp::kDiscard ? 0 : -EINVAL;
}

void NvmeChannel::StartTransfer(BlockRequest& request, uint64_t length) {
  const uint32_t bytes = FillTransfer(*free_, request, {}, request.offset, length);
  if (bytes == length) return Send(TakeSlot(request, nullptr));
  Transfer& transfer = transfers_.Take();
  transfer = {.request = &request, .offset = request.offset, .left = length};
  if (bytes != 0) {
    counters_.splits.Add();
    SendPiece(transfer, bytes);
    if (SendPieces(transfer)) return;
  }
  transfer.waits = true;
  unfinished_.Push(transfer);
}

void NvmeChannel::StartDiscard(BlockRequest& request) {
  // It is a hint: what is no whole block is left alone.
  const uint64_t mask = ns_.block_size - 1;
  const uint64_t begin = (request.offset + mask) & ~mask;
  const uint64_t end = (request.offset + request.length) & ~mask;
  if (begin >= end) return FinishLater(request, 0);
  FillDiscard(*free_, begin, end - begin);
  Transfer* transfer = nullptr;
  if (request.durable && ns_.volatile_cache) {  // it knows no FUA
    transfer = &transfers_.Take();
    *transfer = {.request = &request, .in_flight = 1, .flushes = true};
  }
  Send(TakeSlot(request, transfer));
}

void NvmeChannel::StartFlush(BlockRequest& request, Transfer* transfer) {
  nvme::Command& command = free_->command;
  command.opcode = static_cast<uint8_t>(nvme::IoOp::kFlush);
  command.prp1 = command.prp2 = 0;
  command.cdw10 = command.cdw11 = command.cdw12 = 0;
  Send(TakeSlot(request, transfer));
}

// As many as find slots. Whether that was all.
bool NvmeChannel::SendPieces(Transfer& transfer) {
  while (transfer.left != 0) {
    if (free_ == nullptr) return false;
    const uint32_t bytes =
        FillTransfer(*free_, *transfer.request, transfer.cursor, transfer.offset, transfer.left);
    if (bytes == 0) return false;  // until a bounce buffer is given back
    SendPiece(transfer, bytes);
  }
  return true;
}

// What the free slot was filled with.
void NvmeChannel::SendPiece(Transfer& transfer, uint32_t bytes) {
  BlockRequest& request = *transfer.request;
  transfer.offset += bytes;
  transfer.left -= bytes;
  if (!request.segments.empty()) transfer.cursor.Advance(request.segments, bytes);
  ++transfer.in_flight;
  Send(TakeSlot(request, &transfer));
}

// With the slots and buffers that have become free.
void NvmeChannel::GoOn() {
  while (!unfinished_.empty() && !frozen_) {
    Transfer& transfer = *unfinished_.front();
    if (!SendPieces(transfer)) return;
    unfinished_.Pop();
    transfer.waits = false;
    if (transfer.in_flight == 0) FinishTransfer(transfer);  // one that has failed meanwhile
  }
  while (!waiting_.empty() && unfinished_.empty() && free_ != nullptr && !frozen_) {
    Start(*waiting_.Pop());
  }
}

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
  const uint64_t start = offset >> block_shift_;
  command.prp1 = data.prp1;
  command.prp2 = data.prp2;
  command.cdw10 = static_cast<uint32_t>(start);
  command.cdw11 = static_cast<uint32_t>(start >> 32);
  command.cdw12 = control | ((data.bytes >> block_shift_) - 1);
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

[[gnu::noinline]] Prps NvmeChannel::FillBounce(Slot& slot, const BlockRequest& request,
                                               const SegmentCursor& cursor, uint32_t most) {
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
  const nvme::DsmRange range = {.attributes = 0,
                                .blocks = static_cast<uint32_t>(bytes >> block_shift_),
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

NvmeChannel::Slot& NvmeChannel::TakeSlot(BlockRequest& request, Transfer* transfer) {
  Slot& slot = *free_;
  free_ = slot.next_free;
  slot.request = &request;
  slot.transfer = transfer;
  slot.in_flight = true;
  slot.aborted = false;
  slot.sends = 0;
  return slot;
}

void NvmeChannel::Send(Slot& slot) {
  if (frozen_) return;  // Thaw does
  const size_t index = IndexOf(slot);
  slot.command.id = static_cast<uint16_t>(slot.generation << 8 | index);
  ++slot.sends;
  counters_.commands.Add();
  queue_.sent_at(index).store(queue_.parts().watch.tick.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  ring_.Push(slot.command);
  io_thread_.AtSubmit(doorbell_hook_);
}

void NvmeChannel::RingDoorbell() {
  if (frozen_) return;
  if (ring_.Submit()) counters_.doorbells.Add();
  // No fence: see NvmeController::Rest.
  if (queue_.parts().watch.asleep.load(std::memory_order_relaxed)) [[unlikely]] {
    queue_.parts().control.Signal();
  }
}

void NvmeChannel::Reap() {
  TakeCompletions();
  if (ring_.Acknowledge()) counters_.doorbells.Add();
  // The second time since the thread last slept: so it looks, and whoever looks needs no interrupt.
  // One that comes once a sleep is cheaper than two writes to the device.
  if (reaped_ && !masked_ && queue_.parts().vector_control != nullptr) {
    StoreRelease(queue_.parts().vector_control, uint32_t{1});
    masked_ = true;
  }
  reaped_ = true;
  GoOn();
}

// No more than a ring's worth.
void NvmeChannel::TakeCompletions() {
  for (unsigned taken = 0; taken < ring_.entries() && ring_.HasCompletion(); ++taken) {
    Complete(ring_.Pop());
  }
}

void NvmeChannel::Complete(const nvme::Completion& completion) {
  const size_t index = completion.id & 0xff;
  if (index >= slots_.size() || !slots_[index].in_flight ||
      slots_[index].generation != completion.id >> 8) [[unlikely]] {
    counters_.stray_completions.Add();
    return;
  }
  Slot& slot = slots_[index];
  ++slot.generation;
  const nvme::Status status = nvme::StatusOf(completion.status);
  if ((status & nvme::kStatusCode) == 0) [[likely]]
    return Finish(slot, 0);
  if ((status & nvme::kDoNotRetry) == 0 && slot.sends < kMostSends) {
    counters_.resent.Add();
    return Send(slot);
  }
  Finish(slot, ErrnoOf(status));
}

void NvmeChannel::Finish(Slot& slot, int result) {
  slot.in_flight = false;
  queue_.sent_at(IndexOf(slot)).store(0, std::memory_order_relaxed);
  BlockRequest& request = *slot.request;
  if (slot.bounce != nullptr) [[unlikely]] {
    if (request.op == BlockOp::kRead && result == 0) {
      CopyToSegments(request.segments, slot.bounce_cursor, {slot.bounce, slot.bytes});
    }
    free_bounces_.push_back(std::exchange(slot.bounce, nullptr));
  }
  slot.next_free = free_;
  free_ = &slot;
  if (slot.transfer != nullptr) [[unlikely]]
    return PieceIsDone(*slot.transfer, result);
  FinishRequest(request, result);
}

void NvmeChannel::PieceIsDone(Transfer& transfer, int result) {
  --transfer.in_flight;
  if (result < 0 && transfer.result == 0) {
    transfer.result = result;
    transfer.left = 0;
  }
  if (transfer.in_flight == 0 && transfer.left == 0 && !transfer.waits) FinishTransfer(transfer);
}

void NvmeChannel::FinishTransfer(Transfer& transfer) {
  BlockRequest& request = *transfer.request;
  if (transfer.flushes && transfer.result == 0 && !failed_) {
    transfer.flushes = false;
    transfer.in_flight = 1;
    return StartFlush(request, &transfer);  // there is a slot: that of the piece
  }
  const int result = transfer.flushes && transfer.result == 0 ? -EIO : transfer.result;
  transfers_.Give(transfer);
  FinishRequest(request, result);
}

void NvmeChannel::FinishRequest(BlockRequest& request, int result) {
  if (request.op == BlockOp::kFlush && cache_lost_.load(std::memory_order_relaxed)) result = -EIO;
  if (result < 0) counters_.errors.Add();
  request.result = result;
  request.done(request);
}

void NvmeChannel::FinishLater(BlockRequest& request, int result) {
  request.result = result;
  finished_.Push(request);
  io_thread_.AtPublish(finished_hook_);
}

void NvmeChannel::RunFinished() {
  // All first: what `done` submits is for the next run, which it queues.
  BlockRequest* request = finished_.TakeAll();
  while (request != nullptr) {
    BlockRequest* next = request->next;
    FinishRequest(*request, request->result);
    request = next;
  }
}

// Not before the thread looks for itself again: it has found nothing to wait for in memory.
void NvmeChannel::LetInterruptsThrough() {
  reaped_ = false;
  if (!masked_) return;
  masked_ = false;
  // What came meanwhile is pending in the device, and signalled now.
  StoreRelease(queue_.parts().vector_control, uint32_t{0});
}

void NvmeChannel::Freeze() {
  frozen_ = true;
}

template <typename GiveUp>
void NvmeChannel::GiveUpIf(GiveUp give_up) {
  for (Slot& slot : slots_) {
    if (!slot.in_flight || !give_up(slot)) continue;
    ++slot.generation;
    Finish(slot, -EIO);
  }
}

void NvmeChannel::Thaw() {
  // Still frozen, so that what `done` submits waits: only what was sent before is sent again.
  TakeCompletions();
  GiveUpIf([](const Slot& slot) { return slot.sends >= kMostSends; });
  frozen_ = false;
  ring_.Restart();
  for (Slot& slot : slots_) {
    if (!slot.in_flight) continue;
    counters_.resent.Add();
    Send(slot);
  }
  GoOn();
}

void NvmeChannel::Fail() {
  frozen_ = failed_ = true;
  TakeCompletions();
  GiveUpIf([](const Slot&) { return true; });
  while (Transfer* transfer = unfinished_.Pop()) {
    transfer->result = -EIO;
    FinishTransfer(*transfer);
  }
  while (BlockRequest* request = waiting_.Pop()) FinishLater(*request, -EIO);
}

NvmeChannel::Overdue NvmeChannel::FindOverdue(uint32_t now, uint32_t limit) {
  if (completions_.HasWork()) Reap();
  for (Slot& slot : slots_) {
    std::atomic<uint32_t>& sent_at = queue_.sent_at(IndexOf(slot));
    if (!slot.in_flight || now - sent_at.load(std::memory_order_relaxed) <= limit) continue;
    counters_.timeouts.Add();
    if (slot.aborted) return {.remedy = Remedy::kReset};
    slot.aborted = true;
    sent_at.store(now, std::memory_order_relaxed);
    return {.remedy = Remedy::kAbort, .id = slot.command.id};
  }
  return {};
}

}  // namespace ringside
