// The power cut of a fault script: what FaultChannel does so that it can undo writes, and the
// undoing.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "faults/fault_channel.h"

namespace ringside {

// Whether it changes the disk, and the disk's power may be cut.
bool FaultChannel::IsFollowed(const BlockRequest& request) const {
  return state_.follows() && request.op != BlockOp::kRead && request.op != BlockOp::kFlush;
}

void FaultChannel::Follow(BlockRequest& request) {
  if (IsFollowed(request) ? !state_.Begins() : state_.is_off()) {
    counters_.without_power.Add();
    return EndLater(request, -EIO);
  }
  switch (request.op) {
    case BlockOp::kRead:
      return below_->Submit(request);
    case BlockOp::kFlush:
      return FollowFlush(request);
    case BlockOp::kWrite:
      return FollowWrite(NewOp(request));
    case BlockOp::kDiscard:
    case BlockOp::kWriteZeroes:
      state_.FlushedByItself();
      return SubmitFollowed(NewOp(request));
  }
}

void FaultChannel::FollowFlush(BlockRequest& request) {
  Op& op = NewOp(request);
  op.ended = &FaultChannel::FlushEnded;
  op.flush_begun_at = state_.FlushBegins();
  SubmitBelow(op, 0, 0);
}

void FaultChannel::FlushEnded(Op& op) {
  int result = op.below.result;
  if (result == 0 && !state_.Flushed(op.flush_begun_at)) result = -EIO;
  End(op, result);
}

void FaultChannel::FollowWrite(Op& op) {
  op.write = state_.Add(*op.request);
  if (op.write == nullptr) return SubmitFollowed(op);
  ReadBefore(op);
}

void FaultChannel::ReadBefore(Op& op) {
  op.ended = &FaultChannel::BeforeImageEnded;
  op.segments.assign(
      1,
      {.host = op.write->before, .length = static_cast<uint32_t>(op.write->length), .region = 0});
  op.below.op = BlockOp::kRead;
  op.below.durable = op.below.unmap = false;
  op.below.offset = op.request->offset;
  op.below.length = 0;
  op.below.segments = op.segments;
  below_->Submit(op.below);
}

void FaultChannel::BeforeImageEnded(Op& op) {
  const bool is_over = op.below.result == -ECANCELED || state_.is_off();
  // Where it cannot be read, it cannot be put back: the write is as good as durable.
  if (is_over || op.below.result != 0) state_.Done(*std::exchange(op.write, nullptr), true);
  if (!is_over) return SubmitFollowed(op);
  state_.Ends();
  End(op, op.below.result == -ECANCELED ? -ECANCELED : -EIO);
}

void FaultChannel::SubmitFollowed(Op& op) {
  op.ended = &FaultChannel::FollowedEnded;
  const bool is_write = op.request->op == BlockOp::kWrite;
  SubmitBelow(op, 0, is_write ? TotalLength(op.request->segments) : op.request->length);
}

void FaultChannel::FollowedEnded(Op& op) {
  int result = op.below.result;
  if (op.write != nullptr) state_.Done(*op.write, op.request->durable && result == 0);
  state_.Ends();
  // The guest is told nothing of what the power cut may have undone.
  if (result != -ECANCELED && state_.is_off()) result = -EIO;
  End(op, result);
}

void FaultChannel::CutPower(Op& op) {
  if (!state_.CutPower()) return End(op, -EIO);
  counters_.cuts.Add();
  cut_ = &op;
  op.below.owner = nullptr;  // what is lost is put back even if the guest resets its disk
  if (!held_.empty() || !shuffled_.empty()) io_thread_.AtPublish(look_now_);
  PutBack();
}

// Other channels' requests end on their threads, so this one looks now and then.
void FaultChannel::PutBack() {
  if (!state_.is_quiet()) return SetTimer(MonotonicNs() + kQuietLookNs);
  puts_back_ = true;
  lost_ = state_.Lose(cut_->random);
  PutBackNext();
}

void FaultChannel::PutBackNext() {
  Op& op = *cut_;
  op.below.durable = op.below.unmap = false;
  op.below.length = 0;
  op.segments.clear();
  if (next_range_ == lost_.lost.size()) {
    op.ended = &FaultChannel::PutBackFlushed;
    op.below.op = BlockOp::kFlush;
    op.below.offset = 0;
  } else {
    const LostRange& range = lost_.lost[next_range_];
    const size_t end = std::min(next_sector_ + kMostPutBack, range.sectors.size());
    op.ended = &FaultChannel::PutBackEnded;
    op.below.op = BlockOp::kWrite;
    op.below.offset = range.offset + next_sector_ * state_.sector();
    for (; next_sector_ < end; ++next_sector_) {
      op.segments.push_back(
          {.host = range.sectors[next_sector_], .length = state_.sector(), .region = 0});
    }
  }
  op.below.segments = op.segments;
  below_->Submit(op.below);
}

void FaultChannel::PutBackEnded(Op& op) {
  if (op.below.result != 0) return CutIsOver(op.below.result);
  if (next_sector_ == lost_.lost[next_range_].sectors.size()) {
    ++next_range_;
    next_sector_ = 0;
  }
  PutBackNext();
}

void FaultChannel::CutIsOver(int result) {
  if (result == 0) {
    state_.logger().Log(Severity::kWarning,
                        "disk '%s': its power is cut, as its fault script says: of the unflushed "
                        "writes %d are kept, %d lost and %d torn; all requests fail from now on",
                        state_.name(), lost_.kept_writes, lost_.lost_writes, lost_.torn_writes);
  } else {
    const std::string what =
        absl::StrFormat("disk '%s': what its power cut loses cannot be put back", state_.name());
    state_.logger().Log(
        Severity::kError, "%s",
        Message(ErrnoError(-result, what, "its content is not what a power cut leaves")));
  }
  lost_ = {};
  End(*std::exchange(cut_, nullptr), -EIO);
  if (cancelled_) below_->Cancel();
}

}  // namespace ringside
