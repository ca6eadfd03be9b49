#include "devices/blk_queue.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace ringside {
namespace {

// As Count counts them, for observers.
RequestKind KindOf(const BlkParse& parse, BlockOp op) {
  if (parse.kind != BlkParse::Kind::kSubmit) return RequestKind::kOther;
  constexpr std::array kKinds = {RequestKind::kRead, RequestKind::kWrite, RequestKind::kFlush,
                                 RequestKind::kDiscard, RequestKind::kDiscard};
  static_assert(static_cast<size_t>(BlockOp::kWriteZeroes) + 1 == kKinds.size());
  return kKinds[static_cast<size_t>(op)];
}

}  // namespace

BlkQueue::BlkQueue(const Parts& parts, const Disk& disk, const QueueSetup& setup, uint64_t features)
    : QueueWorker(parts, setup, features),
      disk_(disk),
      slots_(std::make_unique_for_overwrite<std::byte[]>(sizeof(Slot) * setup.size)) {
  source = this;
}

BlkQueue::BlkQueue(const Parts& parts, const Disk& disk, BlkQueue& before)
    : QueueWorker(parts, before),
      disk_(disk),
      slots_(std::move(before.slots_)),
      free_segments_(std::move(before.free_segments_)) {
  source = this;
  before.recalled_.TakeEach([this](BlockRequest& request) { recalled_.Push(request); });
}

void BlkQueue::Recall() {
  recalls.store(true, std::memory_order_relaxed);
}

void BlkQueue::Forget() {
  recalled_.TakeEach([this](BlockRequest& request) { Free(static_cast<Slot&>(request)); });
}

BlkQueue::Slot& BlkQueue::SlotAt(uint16_t head) {
  Slot& slot = *new (&slots_[sizeof(Slot) * head]) Slot;
  slot.owner = this;  // here, where it costs no more than the null pointer would
  slot.done = Done;
  return slot;
}

void BlkQueue::Run() {
  Observed([this](auto observer) { TakeAll(observer); });
  ReportIfBroken();
}

template <typename Observer>
void BlkQueue::TakeAll(Observer observer) {
  std::array<DescriptorChain, kBatch> batch;
  size_t count = 0;
  // At most a ring's worth: what the guest adds meanwhile is for the next turn.
  for (size_t budget = queue().size(); budget > 0; budget -= count) {
    // After a full batch there may be more of what that look at the available index showed.
    if (count < kBatch) observer.Seen();
    count = TakeChains(std::span(batch).first(std::min(budget, kBatch)));
    for (size_t i = 0; i < count && queue().error() == nullptr; ++i) {
      Take(std::move(batch[i]), observer);
    }
    if (count == 0 || queue().error() != nullptr) break;
  }
}

template <typename Observer>
inline void BlkQueue::Begin(Slot& slot, Observer& observer) {
  Begins();
  observer.Submits();
  disk_.channel.Submit(slot);
  observer.Submitted(slot.chain.head());
}

// Inlined, which spares what goes through here a dozen instructions.
[[gnu::always_inline]] inline void BlkQueue::Fill(Slot& slot, const BlkParse& parse) {
  slot.status_byte = parse.status_byte;
  slot.written = parse.written;
  slot.many_segments = parse.data.size() > kInlineSegments ? PopSegments() : nullptr;
  Segment* segments = slot.many_segments != nullptr ? slot.many_segments : slot.few_segments.data();
  if (parse.data.size() == 1) {
    *segments = parse.data.front();  // by far the most: saves the call of memmove
  } else {
    std::ranges::copy(parse.data, segments);
  }
  slot.segments = {segments, parse.data.size()};
  // Flushes are left alone: what was written before the driver asked for write-through needs them.
  slot.durable = slot.op != BlockOp::kRead && slot.op != BlockOp::kFlush &&
                 !disk_.write_back.load(std::memory_order_relaxed);
}

template <typename Observer>
void BlkQueue::Take(DescriptorChain chain, Observer& observer) {
  if (!queue().Walk(chain, buffers_)) return;
  // A head in use is never taken again, so its slot is free.
  Slot& slot = SlotAt(chain.head());
  const BlkParse parse = ParseBlkRequest(buffers_, disk_.view, slot);
  Count(parse, slot);
  observer.Taken(chain.head(), KindOf(parse, slot.op), parse.bytes);
  switch (parse.kind) {
    case BlkParse::Kind::kBroken:
      queue().Break("a request has no room for its header or its status");
      return;
    case BlkParse::Kind::kComplete:
      if (parse.status != BlkStatus::kOk) parts().stats.errors.Add();
      Answer(std::move(chain), parse.status_byte, parse.status, parse.written);
      return;
    case BlkParse::Kind::kSubmit:
      slot.chain = std::move(chain);
      Fill(slot, parse);
      Begin(slot, observer);
  }
}

void BlkQueue::Resume() {
  Observed([this](auto observer) {
    recalled_.TakeEach([&](BlockRequest& request) {
      Slot& slot = static_cast<Slot&>(request);
      slot.owner = this;
      Begin(slot, observer);
    });
  });
}

void BlkQueue::Done(BlockRequest& request) {
  static_cast<BlkQueue&>(*request.owner).Complete(static_cast<Slot&>(request));
}

inline void BlkQueue::Free(Slot& slot) {
  if (slot.many_segments != nullptr) PushSegments(slot.many_segments);
}

void BlkQueue::Complete(Slot& slot) {
  Ends();
  if (closing() && (stopped() || slot.result == -ECANCELED)) return CompleteLast(slot);
  if (slot.op == BlockOp::kFlush) {
    signal().Hurry();
  } else if (!slot.segments.empty()) {
    signal().Completed(slot.segments.front().host);
  }
  Free(slot);
  BlkStatus status = BlkStatus::kOk;
  if (slot.result != 0) {
    parts().stats.errors.Add();
    status = slot.result == -EOPNOTSUPP ? BlkStatus::kUnsupported : BlkStatus::kIoError;
    if (disk_.reports != nullptr) disk_.reports->RequestFailed(slot.op, -slot.result);
  }
  Answer(std::move(slot.chain), slot.status_byte, status, slot.written);
}

// Of a queue that stops, or one that was recalled for the next thread to begin anew.
[[gnu::noinline]] void BlkQueue::CompleteLast(Slot& slot) {
  if (stopped()) {
    Free(slot);
  } else {
    recalled_.Push(slot);
  }
  TellIfIdle();
}

void BlkQueue::Answer(DescriptorChain chain, std::byte* status_byte, BlkStatus status,
                      uint32_t written) {
  *status_byte = static_cast<std::byte>(status);
  QueueWorker::Answer(std::move(chain), written);
}

void BlkQueue::Count(const BlkParse& parse, const BlockRequest& request) {
  QueueStats& stats = parts().stats;
  if (parse.kind != BlkParse::Kind::kSubmit) return stats.others.Add();
  switch (request.op) {
    case BlockOp::kRead:
      stats.bytes_read.Add(parse.bytes);
      return stats.reads.Add();
    case BlockOp::kWrite:
      stats.bytes_written.Add(parse.bytes);
      return stats.writes.Add();
    case BlockOp::kFlush:
      return stats.flushes.Add();
    case BlockOp::kDiscard:
    case BlockOp::kWriteZeroes:
      return stats.discards.Add();
  }
}

[[gnu::noinline]] Segment* BlkQueue::PopSegments() {
  if (free_segments_.empty()) {
    return std::make_unique_for_overwrite<Segment[]>(ChainBuffers::kMax).release();
  }
  Segment* segments = free_segments_.back().release();
  free_segments_.pop_back();
  return segments;
}

// Apart, so that what comes here seldom does not cost all others their registers.
[[gnu::noinline]] void BlkQueue::PushSegments(Segment* segments) {
  std::unique_ptr<Segment[]> owned(segments);
  if (free_segments_.size() < kMaxFreeSegments) free_segments_.push_back(std::move(owned));
}

}  // namespace ringside
