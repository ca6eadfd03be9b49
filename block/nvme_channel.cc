#include "block/nvme_channel.h"

#include <bit>
#include <cerrno>

#include "base/status.h"

namespace ringside {
namespace {

int ErrnoOf(nvme::Status status) {
  switch (status & nvme::kStatusCode) {
    case nvme::kCapacityExceeded:
      return -ENOSPC;
    case nvme::kInvalidOpcode:
      return -EOPNOTSUPP;
    case nvme::kLbaOutOfRange:
      return -EINVAL;
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
      offsets_(parts.offsets.data()),
      watch_(parts.queue.parts().watch),
      vector_control_(parts.queue.parts().vector_control),
      cache_lost_(parts.cache_lost),
      block_shift_(static_cast<unsigned>(std::countr_zero(parts.ns.block_size))),
      ring_(MakeRing(parts.queue)) {
  const size_t in_flight = queue_.parts().entries - size_t{1};
  for (Slot& slot : std::span(slots_).first(in_flight)) {
    slot.command.nsid = ns_.id;
    slot.next_free = free_;
    free_ = &slot;
  }
  for (auto& bounce : queue_.memory().bounces) free_bounces_.push_back(bounce.data());
  queue_.Open(*this);
}

NvmeChannel::~NvmeChannel() {
  io_thread_.Detach(completions_);  // does nothing if it never was attached
  LetInterruptsThrough();           // of the next one with this vector
  queue_.Close();
}

void NvmeChannel::Submit(BlockRequest& request) {
  // Behind those that wait already: nobody is overtaken for ever.
  if (must_wait_ || free_ == nullptr) [[unlikely]]
    return Wait(request);
  if (FillPages(*free_, request)) [[likely]]
    return SendNow(TakeSlot(request, nullptr));
  Start(request);
}

[[gnu::noinline]] void NvmeChannel::Wait(BlockRequest& request) {
  if (failed_) return FinishLater(request, -EIO);
  waiting_.Push(request);
  must_wait_ = true;
}

// Most requests: one segment, in two pages at most, which takes neither a list nor a loop, and
// which no MDTS forbids. False if this is no such one; Start does them all. What is beyond the end
// the controller refuses.
inline bool NvmeChannel::FillPages(Slot& slot, const BlockRequest& request) {
  if (request.op > BlockOp::kWrite || request.segments.size() != 1) return false;
  const Segment& segment = request.segments.front();
  const uint64_t length = segment.length;
  const uint64_t offset = request.offset;
  const uint64_t iova = reinterpret_cast<uint64_t>(segment.host) + offsets_[segment.region];
  const uint64_t end = (iova & (nvme::kPageSize - 1)) + length;
  const bool simple = (iova & 3) == 0 && length != 0 && end <= uint64_t{2} * nvme::kPageSize &&
                      ((offset | length) & (ns_.block_size - 1)) == 0 && ns_.boundary == 0;
  const bool write = request.op == BlockOp::kWrite;
  if (!simple || (write && ns_.info.read_only)) return false;
  nvme::Command& command = slot.command;
  command.opcode = static_cast<uint8_t>(write ? nvme::IoOp::kWrite : nvme::IoOp::kRead);
  command.prp1 = iova;
  command.prp2 = end > nvme::kPageSize ? (iova | (nvme::kPageSize - 1)) + 1 : 0;
  FillRange(command, offset, length,
            write && request.durable && ns_.volatile_cache ? nvme::kForceUnitAccess : 0);
  return true;
}

// There is a slot.
[[gnu::noinline]] void NvmeChannel::Start(BlockRequest& request) {
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
  transfer.waits = must_wait_ = true;
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
[[gnu::noinline]] void NvmeChannel::GoOn() {
  while (!unfinished_.empty()) {
    Transfer& transfer = *unfinished_.front();
    if (!SendPieces(transfer)) return;
    unfinished_.Pop();
    transfer.waits = false;
    if (transfer.in_flight == 0) FinishTransfer(transfer);  // one that has failed meanwhile
  }
  while (!waiting_.empty() && unfinished_.empty() && free_ != nullptr) Start(*waiting_.Pop());
  must_wait_ = !waiting_.empty() || !unfinished_.empty();
}

inline NvmeChannel::Slot& NvmeChannel::TakeSlot(BlockRequest& request, Transfer* transfer) {
  Slot& slot = *free_;
  free_ = slot.next_free;
  slot.request = &request;
  slot.transfer = transfer;
  slot.aborted = false;
  slot.sends = 0;
  return slot;
}

void NvmeChannel::Send(Slot& slot) {
  if (!frozen_) return SendNow(slot);
  slot.command.id = static_cast<uint16_t>(IndexOf(slot));  // in flight, so Thaw sends it
}

inline void NvmeChannel::SendNow(Slot& slot) {
  const size_t index = IndexOf(slot);
  slot.command.id = static_cast<uint16_t>(++slot.generation << 8 | index);
  ++slot.sends;
  counters_.commands.Add();
  queue_.sent_at(index).store(watch_.tick.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  ring_.Push(slot.command);
  io_thread_.AtSubmit(doorbell_hook_);
}

void NvmeChannel::RingDoorbell() {
  if (frozen_) return;
  if (ring_.Submit()) counters_.doorbells.Add();
  // No fence: see NvmeController::Rest.
  if (watch_.asleep.load(std::memory_order_relaxed)) [[unlikely]] {
    queue_.parts().control.Signal();
  }
}

void NvmeChannel::Reap() {
  TakeCompletions();
  if (ring_.Acknowledge()) counters_.doorbells.Add();
  // The second time since the thread last slept: so it looks, and whoever looks needs no interrupt.
  // One that comes once a sleep is cheaper than two writes to the device.
  if (reaped_ && !masked_ && vector_control_ != nullptr) {
    StoreRelease(vector_control_, uint32_t{1});
    masked_ = true;
  }
  reaped_ = true;
  if (must_wait_) GoOn();
}

// No more than a ring's worth.
inline void NvmeChannel::TakeCompletions() {
  for (unsigned left = ring_.entries(); left > 0; --left) {
    const nvme::Completion* completion = ring_.Pop();
    if (completion == nullptr) return;
    Complete(*completion);
  }
}

inline void NvmeChannel::Complete(const nvme::Completion& completion) {
  const size_t index = completion.id & 0xff;
  if (index >= slots_.size() || slots_[index].command.id != completion.id) [[unlikely]] {
    counters_.stray_completions.Add();
    return;
  }
  Slot& slot = slots_[index];
  const nvme::Status status = nvme::StatusOf(completion.status);
  if ((status & nvme::kStatusCode) == 0) [[likely]]
    return Finish(slot, index, 0);
  CompleteWithError(slot, index, status);
}

[[gnu::noinline]] void NvmeChannel::CompleteWithError(Slot& slot, size_t index,
                                                      nvme::Status status) {
  if ((status & nvme::kDoNotRetry) != 0 || slot.sends >= kMostSends) {
    return Finish(slot, index, ErrnoOf(status));
  }
  counters_.resent.Add();
  Send(slot);
}

inline void NvmeChannel::Finish(Slot& slot, size_t index, int result) {
  slot.command.id = Slot::kNone;
  queue_.sent_at(index).store(0, std::memory_order_relaxed);
  if (slot.bounce != nullptr) [[unlikely]]
    GiveBackBounce(slot, result);
  slot.next_free = free_;
  free_ = &slot;
  if (slot.transfer != nullptr) [[unlikely]]
    return PieceIsDone(*slot.transfer, result);
  FinishRequest(*slot.request, result);
}

[[gnu::noinline]] void NvmeChannel::PieceIsDone(Transfer& transfer, int result) {
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

inline void NvmeChannel::FinishRequest(BlockRequest& request, int result) {
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
  StoreRelease(vector_control_, uint32_t{0});
}

void NvmeChannel::Freeze() {
  frozen_ = must_wait_ = true;
}

template <typename GiveUp>
void NvmeChannel::GiveUpIf(GiveUp give_up) {
  for (Slot& slot : slots_) {
    if (slot.in_flight() && give_up(slot)) Finish(slot, IndexOf(slot), -EIO);
  }
}

void NvmeChannel::Thaw() {
  // Still frozen, so that what `done` submits waits: only what was sent before is sent again.
  TakeCompletions();
  GiveUpIf([](const Slot& slot) {
    return slot.sends >= (slot.aborted ? kMostSends : kMostSendsOfOthers);
  });
  frozen_ = false;
  ring_.Restart();
  for (Slot& slot : slots_) {
    if (!slot.in_flight()) continue;
    counters_.resent.Add();
    Send(slot);
  }
  GoOn();
}

void NvmeChannel::Fail() {
  frozen_ = failed_ = must_wait_ = true;
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
    if (!slot.in_flight() || now - sent_at.load(std::memory_order_relaxed) <= limit) continue;
    counters_.timeouts.Add();
    if (slot.aborted) return {.remedy = Remedy::kReset};
    slot.aborted = true;
    sent_at.store(now, std::memory_order_relaxed);
    return {.remedy = Remedy::kAbort, .id = slot.command.id};
  }
  return {};
}

}  // namespace ringside
