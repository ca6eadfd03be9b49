#include "faults/fault_channel.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"

namespace ringside {
namespace {

bool IsTransfer(const BlockRequest& request) {
  return request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
}

uint64_t LengthOf(const BlockRequest& request) {
  return IsTransfer(request) ? TotalLength(request.segments) : request.length;
}

// `length` bytes of the segments from `at` on.
void Slice(std::span<const Segment> segments, uint64_t at, uint64_t length,
           std::vector<Segment>& slice) {
  slice.clear();
  for (const Segment& segment : segments) {
    if (at >= segment.length) {
      at -= segment.length;
      continue;
    }
    if (length == 0) return;
    Segment part = segment;
    part.host += at;
    part.length = static_cast<uint32_t>(std::min(segment.length - at, length));
    at = 0;
    length -= part.length;
    slice.push_back(part);
  }
}

}  // namespace

FaultChannel::FaultChannel(IoThread& io_thread, std::unique_ptr<BlockChannel> below,
                           FaultState& state, FaultCounters& counters)
    : io_thread_(io_thread), below_(std::move(below)), state_(state), counters_(counters) {
  shuffled_.reserve(kMostReordered);
}

FaultChannel::~FaultChannel() {
  io_thread_.Disarm(timer_);
  counters_.taken.store(false, std::memory_order_release);
}

void FaultChannel::Submit(BlockRequest& request) {
  if (state_.follows() && state_.is_off()) return Follow(request);  // no rule is about these
  const FaultDecision decision = state_.plan().Decide(request, MonotonicNs());
  if (decision.rule == nullptr) return PassOn(request);
  Meet(*decision.rule, NewOp(request, decision.random));
}

// What is under way here is waited for, and only then are those below told, while what a power cut
// has undone is being written back.
void FaultChannel::Cancel() {
  cancelled_ = true;
  if (cut_ == nullptr) below_->Cancel();
  // Only then, since a channel that has nothing may be gone before the hook runs.
  if (!held_.empty() || !shuffled_.empty()) io_thread_.AtPublish(look_now_);
}

FaultChannel::Op& FaultChannel::NewOp(BlockRequest& request, uint64_t random) {
  Op& op = ops_.Take();
  op.channel = this;
  op.request = &request;
  op.random = random;
  op.at = 0;
  op.write = nullptr;
  op.below.above = &op;
  op.below.owner = request.owner;
  op.below.done = [](BlockRequest& below) {
    Op& ended = *static_cast<Op::Below&>(below).above;
    (ended.channel->*ended.ended)(ended);
  };
  return op;
}

void FaultChannel::Meet(const FaultRule& rule, Op& op) {
  switch (rule.action) {
    case FaultAction::kError:
      counters_.errors.Add();
      return End(op, -rule.error);
    case FaultAction::kShort:
    case FaultAction::kTorn:
      return BeginInPart(rule, op);
    case FaultAction::kDelay:
      counters_.delayed.Add();
      return Hold(op, MonotonicNs() + rule.delay_ns);
    case FaultAction::kHang:
      counters_.hung.Add();
      return Hold(op, kNever);
    case FaultAction::kReorder:
      counters_.reordered.Add();
      return Shuffle(op, rule.reorder);
    case FaultAction::kCut:
      return CutPower(op);
  }
}

void FaultChannel::PassOn(BlockRequest& request) {
  if (state_.follows()) return Follow(request);
  below_->Submit(request);
}

void FaultChannel::PassOnAndFree(Op& op) {
  BlockRequest& request = *op.request;
  ops_.Give(op);
  PassOn(request);
}

void FaultChannel::SubmitBelow(Op& op, uint64_t at, uint64_t length) {
  const BlockRequest& request = *op.request;
  op.below.op = request.op;
  op.below.durable = request.durable;
  op.below.unmap = request.unmap;
  op.below.offset = request.offset + at;
  op.below.length = 0;
  if (!IsTransfer(request)) {
    op.below.length = length;
    op.below.segments = {};
  } else {
    Slice(request.segments, at, length, op.segments);
    op.below.segments = op.segments;
  }
  below_->Submit(op.below);
}

void FaultChannel::End(Op& op, int result) {
  BlockRequest& request = *op.request;
  ops_.Give(op);
  EndLater(request, result);
}

void FaultChannel::EndLater(BlockRequest& request, int result) {
  request.result = result;
  ended_.Push(request);
  io_thread_.AtPublish(end_all_);
}

void FaultChannel::EndAll() {
  ended_.TakeEach([](BlockRequest& request) { request.done(request); });
}

// Short and torn.

void FaultChannel::BeginInPart(const FaultRule& rule, Op& op) {
  const BlockRequest& request = *op.request;
  if (IsFollowed(request) && !state_.Begins()) return End(op, -EIO);
  if (rule.action == FaultAction::kTorn) {
    counters_.torn.Add();
    op.ended = &FaultChannel::TornRunEnded;
    return NextTornRun(op);
  }
  counters_.short_transfers.Add();
  op.ended = &FaultChannel::PartEnded;
  const uint64_t most = std::min(rule.bytes, LengthOf(request));
  const uint64_t part = most - most % state_.sector();
  op.below.result = 0;
  if (part == 0) return PartEnded(op);
  SubmitBelow(op, 0, part);
}

void FaultChannel::PartEnded(Op& op) {
  if (IsFollowed(*op.request)) state_.Ends();
  // What is recalled is begun anew elsewhere, and may meet the fault there.
  End(op, op.below.result == -ECANCELED ? -ECANCELED : -EIO);
}

// Each sector is drawn for once: those in a row that are written are one request.
void FaultChannel::NextTornRun(Op& op) {
  const uint64_t total = LengthOf(*op.request);
  op.below.result = 0;
  while (op.at < total) {
    const uint64_t begin = op.at;
    while (op.at < total && NextRandom(op.random) % 2 == 0) op.at += state_.sector();
    const uint64_t length = op.at - begin;
    op.at += state_.sector();  // the one that has ended the run is not written
    if (length != 0) return SubmitBelow(op, begin, length);
  }
  PartEnded(op);
}

void FaultChannel::TornRunEnded(Op& op) {
  if (op.below.result == -ECANCELED) return PartEnded(op);
  NextTornRun(op);
}

// Held: delayed, hanging, and waiting for others.

void FaultChannel::Hold(Op& op, int64_t due_ns) {
  op.due_ns = due_ns;
  held_.Push(op);
  SetTimer(due_ns);
}

void FaultChannel::SetTimer(int64_t at_ns) {
  const int64_t most_ns = MonotonicNs() + kLookNs;
  const int64_t next_ns = std::min(at_ns, most_ns);
  if (timer_.armed() && timer_at_ns_ <= next_ns) return;
  timer_at_ns_ = next_ns;
  io_thread_.Arm(timer_, next_ns);
}

void FaultChannel::Shuffle(Op& op, uint32_t together) {
  if (shuffled_.empty()) {
    shuffled_due_ns_ = MonotonicNs() + kLookNs;
    SetTimer(shuffled_due_ns_);
  }
  shuffled_.push_back(&op);
  if (shuffled_.size() >= together) ReleaseShuffled();
}

// In an order that the first one's draw decides.
void FaultChannel::ReleaseShuffled() {
  uint64_t random = shuffled_.front()->random;
  for (size_t left = shuffled_.size(); left > 1; --left) {
    std::swap(shuffled_[left - 1], shuffled_[NextRandom(random) % left]);
  }
  for (Op* op : shuffled_) {
    if (!GivesUp(*op)) PassOnAndFree(*op);
  }
  shuffled_.clear();
  shuffled_due_ns_ = kNever;
}

bool FaultChannel::GivesUp(Op& op) {
  const bool is_recalled = cancelled_ || op.request->recalled();
  if (!is_recalled && !state_.is_off()) return false;
  End(op, is_recalled ? -ECANCELED : -EIO);
  return true;
}

void FaultChannel::LookAtHeld(int64_t now_ns) {
  held_.TakeEach([&](Op& op) {
    if (GivesUp(op)) return;
    if (op.due_ns <= now_ns) return PassOnAndFree(op);
    Hold(op, op.due_ns);
  });
  const bool any_recalled = std::ranges::any_of(
      shuffled_, [this](const Op* op) { return cancelled_ || op->request->recalled(); });
  if (any_recalled || shuffled_due_ns_ <= now_ns) {
    ReleaseShuffled();
  } else if (!shuffled_.empty()) {
    SetTimer(shuffled_due_ns_);
  }
  if (cut_ != nullptr && !puts_back_) PutBack();
}

void FaultChannel::LookNow() {
  LookAtHeld(MonotonicNs());
}

}  // namespace ringside
