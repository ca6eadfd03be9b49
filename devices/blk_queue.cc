#include "devices/blk_queue.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/tsc.h"

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

// What a limit of bytes counts: discards and flushes move none.
uint64_t BytesMoved(const BlkParse& parse, const BlockRequest& request) {
  static_assert(BlockOp::kRead < BlockOp::kFlush && BlockOp::kWrite < BlockOp::kFlush);
  if (request.op < BlockOp::kFlush) return parse.bytes;
  return request.op == BlockOp::kWriteZeroes ? request.length : 0;
}

}  // namespace

// Of a disk with limits.
struct BlkQueue::Throttling {
  Throttling(BlkQueue& queue, const ThrottleGate& gate) : gate(gate), timer(queue) {}

  ThrottleGate gate;
  bool cut_short = false;  // the turn before has left some, which have not come any later
  TimerTo<BlkQueue, &BlkQueue::AskAgain> timer;  // for what was held back
  TscClock clock;
};

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
  if (before.throttling_ != nullptr) {
    throttling_ = std::make_unique<Throttling>(*this, before.throttling_->gate);
  }
}

BlkQueue::~BlkQueue() = default;

void BlkQueue::Recall() {
  recalls.store(true, std::memory_order_relaxed);
  EndWait();
}

void BlkQueue::Drains() {
  EndWait();
}

// What was held back asks again when the queue goes on, on this thread or another.
void BlkQueue::EndWait() {
  if (throttling_ == nullptr) return;
  io_thread().Disarm(throttling_->timer);
  throttling_->cut_short = false;
  throttling_->gate.Interrupt(throttling_->clock.NowNs());
  LetGo();
}

void BlkQueue::Forget() {
  parts().stats.kept.Set(0);
  recalled_.TakeEach([this](BlockRequest& request) { Free(static_cast<Slot&>(request)); });
}

BlkQueue::Slot& BlkQueue::SlotAt(uint16_t head) {
  Slot& slot = *new (&slots_[sizeof(Slot) * head]) Slot;
  slot.owner = this;  // here, where it costs no more than the null pointer would
  slot.done = Done;
  return slot;
}

void BlkQueue::Run() {
  const uint32_t version = disk_.throttle.version();
  ThrottleGate* const gate = version == 0 ? nullptr : &BeginToAsk(version);
  Observed([this, gate](auto observer) { TakeAll(observer, gate); });
  ReportIfBroken();
}

// Apart, for the sake of queues without limits.
[[gnu::noinline]] ThrottleGate& BlkQueue::BeginToAsk(uint32_t version) {
  if (throttling_ == nullptr) [[unlikely]]
    BeginThrottling();
  const int64_t now_ns = throttling_->clock.NowNs();
  if (std::exchange(throttling_->cut_short, false)) {
    throttling_->gate.GoOn(version, now_ns);
  } else {
    throttling_->gate.Begin(version, now_ns);
  }
  return throttling_->gate;
}

[[gnu::noinline]] void BlkQueue::BeginThrottling() {
  const ThrottleGate gate(disk_.throttle, parts().stats.throttle);
  throttling_ = std::make_unique<Throttling>(*this, gate);
}

void BlkQueue::AskAgain(int64_t now_ns) {
  throttling_->clock.Set(now_ns);
  LetGo();
}

// By all requests so far.
uint64_t BlkQueue::BytesTaken() const {
  const QueueStats& stats = parts().stats;
  return stats.bytes_read.Get() + stats.bytes_written.Get();
}

template <typename Observer>
void BlkQueue::TakeAll(Observer observer, ThrottleGate* gate) {
  std::array<DescriptorChain, kBatch> batch;
  std::array<ThreeBuffers, kBatch> three;
  size_t count = 0;
  const bool has_share = io_thread().serves_many();
  const uint64_t bytes_before = has_share ? BytesTaken() : 0;
  const auto share_is_used = [&] {
    return has_share && BytesTaken() - bytes_before >= IoThread::kTurnBytes;
  };
  // What the guest adds meanwhile is for the next turn.
  for (size_t budget = turn_requests(); budget > 0; budget -= count) {
    // After a full batch there may be more of what that look at the available index showed.
    if (count < kBatch) observer.Seen();
    count = queue().Take(std::span(batch).first(std::min(budget, kBatch)));
    // A disk with limits may have to put most of them back.
    const size_t ahead = gate == nullptr ? count : 0;
    for (size_t i = 0; i < ahead; ++i) WalkAhead(batch[i], three[i]);
    size_t taken = 0;
    for (; taken < count && queue().error() == nullptr && !share_is_used(); ++taken) {
      if (taken >= ahead) WalkAhead(batch[taken], three[taken]);
      if (!Take(batch[taken], three[taken], observer, gate)) break;
    }
    if (taken > 0) signal().Took(taken);
    if (queue().error() != nullptr) break;
    if (taken < count) {
      const auto left = std::span(batch).subspan(taken, count - taken);
      if (!share_is_used()) return HoldBackFrom(left);
      PutBack(left);
    }
    if (taken < count || count == 0) break;
  }
  if (gate != nullptr && has_share) throttling_->cut_short = queue().HasWork();
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

void BlkQueue::HoldBackFrom(std::span<DescriptorChain> chains) {
  HoldBack(chains);
  io_thread().Arm(throttling_->timer, throttling_->gate.ask_again_ns());
}

// For a whole batch before the first request of it is parsed: its header, and the place of its
// status, which the guest has used last on another processor, are on their way to this one then.
inline void BlkQueue::WalkAhead(const DescriptorChain& chain, ThreeBuffers& buffers) {
  if (!queue().WalkThree<kBlkHeaderSize, kBlkStatusSize>(chain, buffers)) [[unlikely]] {
    buffers.first = nullptr;
    return;
  }
  __builtin_prefetch(buffers.first, 1);
  __builtin_prefetch(buffers.last, 1);
}

// Whether it was taken: what does not fit the limits is left. `three`: what WalkAhead has found.
template <typename Observer>
bool BlkQueue::Take(DescriptorChain& chain, const ThreeBuffers& three, Observer& observer,
                    ThrottleGate* gate) {
  // A head in use is never taken again, so its slot is free.
  Slot& slot = SlotAt(chain.head());
  if (three.first != nullptr && ParseTransfer(three, disk_.view, slot)) [[likely]] {
    return TakeTransfer(slot, chain, three, observer, gate);
  }
  if (!queue().Walk(chain, buffers_)) return true;
  const BlkParse parse = ParseBlkRequest(buffers_, disk_.view, slot);
  if (gate != nullptr && parse.kind == BlkParse::Kind::kSubmit &&
      !gate->Admit(slot.op, BytesMoved(parse, slot))) {
    return false;
  }
  Count(parse, slot);
  observer.Taken(chain.head(), KindOf(parse, slot.op), parse.bytes);
  switch (parse.kind) {
    case BlkParse::Kind::kBroken:
      return !queue().Break("a request has no room for its header or its status");
    case BlkParse::Kind::kComplete:
      if (parse.status != BlkStatus::kOk) parts().stats.errors.Add();
      Answer(std::move(chain), parse.status_byte, parse.status, parse.written);
      return true;
    case BlkParse::Kind::kSubmit:
      slot.chain = std::move(chain);
      Fill(slot, parse);
      Begin(slot, observer);
  }
  return true;
}

// The same for a transfer, which most requests are.
template <typename Observer>
inline bool BlkQueue::TakeTransfer(Slot& slot, DescriptorChain& chain, const ThreeBuffers& buffers,
                                   Observer& observer, ThrottleGate* gate) {
  const uint64_t bytes = buffers.data.length;
  if (gate != nullptr && !gate->Admit(slot.op, bytes)) return false;
  const bool reads = slot.op == BlockOp::kRead;
  QueueStats& stats = parts().stats;
  (reads ? stats.bytes_read : stats.bytes_written).Add(bytes);
  (reads ? stats.reads : stats.writes).Add();
  observer.Taken(chain.head(), reads ? RequestKind::kRead : RequestKind::kWrite, bytes);
  slot.chain = std::move(chain);
  slot.status_byte = buffers.last;
  slot.written = kBlkStatusSize + (reads ? buffers.data.length : 0);
  slot.many_segments = nullptr;
  slot.few_segments[0] = buffers.data;
  slot.segments = std::span(slot.few_segments).first(1);
  slot.durable = !reads && !disk_.write_back.load(std::memory_order_relaxed);
  Begin(slot, observer);
  return true;
}

void BlkQueue::Resume() {
  parts().stats.kept.Set(0);
  Observed([this](auto observer) {
    recalled_.TakeEach([&](BlockRequest& request) {
      Slot& slot = static_cast<Slot&>(request);
      slot.owner = this;
      slot.PutBack();
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
  if (slot.result != 0) return CompleteFailed(slot);
  Finish(slot, BlkStatus::kOk);
}

[[gnu::always_inline]] inline void BlkQueue::Finish(Slot& slot, BlkStatus status) {
  if (slot.op == BlockOp::kFlush) {
    signal().Hurry();
  } else if (!slot.segments.empty()) {
    signal().Completed(slot.segments.front().host);
  }
  Free(slot);
  Answer(std::move(slot.chain), slot.status_byte, status, slot.written);
}

// Apart, so that requests that succeed pay one branch for it.
[[gnu::noinline]] void BlkQueue::CompleteFailed(Slot& slot) {
  // What the disk cannot do at all no waiting mends.
  const bool is_unsupported = slot.result == -EOPNOTSUPP &&
                              (slot.op == BlockOp::kDiscard || slot.op == BlockOp::kWriteZeroes);
  if (!is_unsupported && IsKept(slot)) return Keep(slot);
  parts().stats.errors.Add();
  if (disk_.reports != nullptr) disk_.reports->RequestFailed(slot.op, -slot.result);
  const bool is_ignored = !is_unsupported && ActionOn(slot) == ErrorAction::kIgnore;
  const BlkStatus failed =
      slot.result == -EOPNOTSUPP ? BlkStatus::kUnsupported : BlkStatus::kIoError;
  Finish(slot, is_ignored ? BlkStatus::kOk : failed);
}

ErrorAction BlkQueue::ActionOn(const BlockRequest& request) const {
  return request.op == BlockOp::kRead ? disk_.rerror : disk_.werror;
}

bool BlkQueue::IsKept(const BlockRequest& request) const {
  const ErrorAction action = ActionOn(request);
  return action == ErrorAction::kStop ||
         (action == ErrorAction::kEnospc && request.result == -ENOSPC);
}

// The guest has no answer and the chain stays taken, until Resume tries it again or the queue is
// stopped. It is not in flight, so the queue may come to rest, or leave, with it.
void BlkQueue::Keep(Slot& slot) {
  recalled_.Push(slot);
  parts().stats.kept.Add();
  if (disk_.reports != nullptr) disk_.reports->RequestKept(slot.op, -slot.result);
  TellIfIdle();
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
