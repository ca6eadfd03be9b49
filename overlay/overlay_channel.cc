#include "overlay/overlay_channel.h"

#include <algorithm>
#include <cerrno>

namespace ringside {

OverlayChannel::OverlayChannel(IoThread& io_thread, std::unique_ptr<BlockChannel> file,
                               std::unique_ptr<BlockChannel> base, const BlockInfo& info,
                               OverlayState& state, OverlayCounters& counters)
    : io_thread_(io_thread),
      file_(std::move(file)),
      base_(std::move(base)),
      info_(info),
      state_(state),
      map_(*state.map),
      data_offset_(state.data_offset),
      counters_(counters),
      commit_(state, *file_, counters, *this) {
  free_lists_.reserve(kKeptLists);
}

OverlayChannel::~OverlayChannel() {
  io_thread_.Disarm(look_);
  counters_.taken.store(false, std::memory_order_release);
}

bool OverlayChannel::IsWithin(const BlockRequest& request, uint64_t length) const {
  const uint64_t size = info_.size;
  return length - 1 < size && request.offset <= size - length;  // 0 is not
}

void OverlayChannel::Submit(BlockRequest& request) {
  if (request.op == BlockOp::kRead || (request.op == BlockOp::kWrite && !request.durable))
      [[likely]] {
    const uint64_t length = TotalLength(request.segments);
    const uint64_t first = request.offset / kOverlayBlock;
    const uint64_t end = OverlayBlocks(request.offset + length);
    if (IsWithin(request, length) &&
        (request.op == BlockOp::kRead ? map_.AreHere(first, end) : map_.AreWritable(first, end)))
        [[likely]] {
      if (request.op == BlockOp::kWrite) state_.Change();
      request.Move(data_offset_);
      return file_->Submit(request);
    }
  }
  SubmitSlowly(request);
}

int OverlayChannel::Refuses(const BlockRequest& request, uint64_t length) const {
  if (cancelled_) return -ECANCELED;
  if (request.op == BlockOp::kFlush) return 0;
  if (length != 0 && !IsWithin(request, length)) return -EINVAL;
  return request.op != BlockOp::kRead && info_.read_only ? -EROFS : 0;
}

[[gnu::noinline]] void OverlayChannel::SubmitSlowly(BlockRequest& request) {
  const bool transfers = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
  const uint64_t length = transfers ? TotalLength(request.segments) : request.length;
  const int refusal = Refuses(request, length);
  if (refusal == 0 && request.op == BlockOp::kRead && IsAllOfBase(request, length)) {
    counters_.base_reads.Add();
    return base_->Submit(request);
  }
  if (refusal == 0 && request.op == BlockOp::kFlush && (info_.read_only || !state_.keeps_map)) {
    return file_->Submit(request);
  }
  submitting_ = true;
  Op& op = NewOp(request, length);
  op.result = refusal;
  if (refusal != 0 || (length == 0 && request.op != BlockOp::kFlush)) {
    Finish(op);
  } else if (request.op == BlockOp::kRead) {
    ReadOn(op);
  } else if (request.op == BlockOp::kFlush) {
    WantCommit(op, &OverlayChannel::Finish);
  } else {
    BeginChange(op);
  }
  submitting_ = false;
}

OverlayOp& OverlayChannel::NewOp(BlockRequest& request, uint64_t length) {
  Op& op = ops_.Take([this](Op& made) { made.channel = this; });
  op.request = &request;
  op.then = nullptr;
  op.children = 0;
  op.result = 0;
  op.at = request.offset;
  op.length = length;
  op.cursor = {};
  op.first = request.offset / kOverlayBlock;
  op.end = OverlayBlocks(request.offset + length);
  op.reserved = 0;
  op.holds_blocks = false;
  op.leads_commit = false;
  op.wait = Op::Wait::kNothing;
  return op;
}

OverlayChild& OverlayChannel::NewChild(Op& op, BlockOp what, uint64_t offset) {
  OverlayChild& child = children_.Take();
  static_cast<BlockRequest&>(child) =
      BlockRequest{.op = what, .offset = offset, .owner = op.request->owner};
  child.op = &op;
  child.done = [](BlockRequest& ended) {
    auto& one = static_cast<OverlayChild&>(ended);
    one.op->channel->ChildEnded(one);
  };
  ++op.children;
  if (op.request->op == BlockOp::kRead) ++pieces_;
  return child;
}

void OverlayChannel::SubmitChild(Op& op, BlockChannel& below, BlockOp what, uint64_t offset,
                                 std::span<const Segment> segments) {
  OverlayChild& child = NewChild(op, what, offset);
  child.segments = segments;
  below.Submit(child);
}

// Of the overlay's file. It is not recalled: the map says already that nothing is there, so nobody
// would give the space back later.
void OverlayChannel::SubmitRange(Op& op, BlockOp what, uint64_t offset, uint64_t length) {
  OverlayChild& child = NewChild(op, what, data_offset_ + offset);
  child.owner = nullptr;
  child.length = length;
  child.unmap = true;
  file_->Submit(child);
}

void OverlayChannel::ChildEnded(OverlayChild& child) {
  Op& op = *child.op;
  if (child.result < 0 && op.result == 0) op.result = child.result;
  children_.Give(child);
  if (op.request->op == BlockOp::kRead) --pieces_;
  if (--op.children == 0) (this->*op.then)(op);
}

// `done` is not called from within Submit.
void OverlayChannel::Finish(Op& op) {
  if (!submitting_) return Complete(op);
  finished_.Push(op);
  io_thread_.AtPublish(complete_);
}

void OverlayChannel::Complete(Op& op) {
  GiveCopies(op);
  GiveList(op);
  BlockRequest& request = *op.request;
  request.result = op.result;
  ops_.Give(op);
  request.done(request);
}

// For its children's segments: those of the request, one more with each cut of a read, and two with
// what a write has from below.
std::vector<Segment>& OverlayChannel::EmptyList(Op& op) {
  if (op.request->segments.size() > kFewSegments - kMostOfOne && op.many == nullptr) {
    if (free_lists_.empty()) {
      op.many = std::make_unique<std::vector<Segment>>();
      op.many->reserve(kManySegments);
    } else {
      op.many = std::move(free_lists_.back());
      free_lists_.pop_back();
    }
  }
  op.segments().clear();
  return op.segments();
}

// What a guest once had under way at a time is not kept for good.
void OverlayChannel::GiveList(Op& op) {
  if (op.many == nullptr) return;
  if (free_lists_.size() < kKeptLists) {
    free_lists_.push_back(std::move(op.many));
  } else {
    op.many.reset();
  }
}

void OverlayChannel::CompleteAll() {
  finished_.TakeEach([this](Op& op) { Complete(op); });
}

// In a later step of the turn, or in the next one: others get theirs between.
void OverlayChannel::Later(Op& op, Op::Step then) {
  op.then = then;
  later_.Push(op);
  io_thread_.AtHandOver(run_later_);
}

void OverlayChannel::RunLater() {
  runs_later_ = true;
  later_.TakeEach([this](Op& op) { (this->*op.then)(op); });
  runs_later_ = false;
}

OverlayChannel::Turn& OverlayChannel::ThisTurn() {
  const uint64_t number = io_thread_.stats().turns.Get();
  if (turn_.number != number) turn_ = {.number = number};
  return turn_;
}

void OverlayChannel::Cancel() {
  cancelled_ = true;
  file_->Cancel();
  if (base_ != nullptr) base_->Cancel();
  io_thread_.AtPublish(look_now_);
}

}  // namespace ringside
