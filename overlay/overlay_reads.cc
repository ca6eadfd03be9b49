// Reads of an overlay that are not of one place alone.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "overlay/overlay_channel.h"

namespace ringside {
namespace {

// Moves the cursor over `length` bytes, and adds the pieces of memory that they are.
void Slice(std::span<const Segment> segments, SegmentCursor& cursor, uint64_t length,
           std::vector<Segment>& to) {
  while (length != 0) {
    const Segment& segment = segments[cursor.segment];
    const auto take =
        static_cast<uint32_t>(std::min<uint64_t>(segment.length - cursor.skip, length));
    if (take != 0) {
      to.push_back({.host = segment.host + cursor.skip, .length = take, .region = segment.region});
    }
    cursor.Advance(segments, take);
    if (take == 0) cursor = {.segment = cursor.segment + 1};  // it was empty
    length -= take;
  }
}

void Zero(std::span<const Segment> segments) {
  for (const Segment& segment : segments) std::memset(segment.host, 0, segment.length);
}

}  // namespace

// Then it is the base's as it is.
bool OverlayChannel::IsAllOfBase(const BlockRequest& request, uint64_t length) const {
  if (length == 0 || base_ == nullptr || request.offset + length > state_.base_bytes) return false;
  const uint64_t first = request.offset / kOverlayBlock;
  if (StateOf(first) != BlockState::kBase) return false;
  const uint64_t end = OverlayBlocks(request.offset + length);
  const BlockMap::Run run = map_.RunAt(first, end);
  return run.state == BlockState::kBase && run.end == end;
}

size_t OverlayChannel::PiecesForOne() const {
  const size_t left = kMostPieces - std::min(pieces_, kMostPieces);
  return std::max<size_t>(left / 2, 1);
}

// The next pieces of a read, as far as one turn goes; none is under way.
void OverlayChannel::ReadOn(Op& op) {
  if (op.result == 0 && GivesUp(op)) op.result = -ECANCELED;
  std::array<Piece, kMostOfOne> pieces;
  const size_t most = PiecesForOne();
  size_t count = 0;
  std::vector<Segment>& segments = EmptyList(op);
  while (op.result == 0 && op.at < EndByte(op) && count < most) {
    const Cut cut = CutPiece(op, pieces[count]);
    if (cut == Cut::kLater) break;
    if (cut == Cut::kPiece) ++count;
  }
  if (op.result != 0) return Finish(op);
  if (count == 0) return op.at == EndByte(op) ? Finish(op) : Later(op, &OverlayChannel::ReadOn);
  op.then = op.at == EndByte(op) ? &OverlayChannel::Finish : &OverlayChannel::ReadOn;
  // The list of segments is complete: it moves no more.
  for (const Piece& piece : std::span(pieces).first(count)) {
    SubmitChild(op, *piece.below, BlockOp::kRead, piece.offset,
                std::span(segments).subspan(piece.first_segment, piece.segments));
  }
}

// Who has the bytes from `at` on, in a block of this state; null if they are zeroes.
BlockChannel* OverlayChannel::Below(BlockState state, uint64_t at) const {
  if (state == BlockState::kHere) return file_.get();
  return state == BlockState::kBase && at < state_.base_bytes ? base_.get() : nullptr;
}

// Who comes while others wait for a turn's zeroes, or goes on then, has its own behind them.
bool OverlayChannel::MayZero() {
  return ThisTurn().zeroed < kZeroedATurn && (runs_later_ || later_.empty());
}

// kNone: it was of zeroes and is done, or nobody knows what it was.
OverlayChannel::Cut OverlayChannel::CutPiece(Op& op, Piece& piece) {
  const uint64_t first = op.at / kOverlayBlock;
  const bool zeroes = Below(StateOf(first), op.at) == nullptr;
  if (zeroes && !MayZero()) return Cut::kLater;
  // Of zeroes there may be far more than one turn makes, and each turn looks anew.
  const uint64_t most = zeroes ? OverlayBlocks(op.at + kZeroedATurn) : op.end;
  const BlockMap::Run run = map_.RunAt(first, std::min(most, op.end));
  if (run.state == BlockState::kBad) {
    op.result = -EIO;
    return Cut::kNone;
  }
  BlockChannel* const below = Below(run.state, op.at);
  uint64_t to = std::min(run.end * kOverlayBlock, EndByte(op));
  uint64_t offset = op.at;
  if (below == nullptr) {
    to = std::min(to, op.at + kZeroedATurn);
  } else if (run.state == BlockState::kHere) {
    offset += data_offset_;
  } else {
    to = std::min(to, state_.base_bytes);
    counters_.base_reads.Add();
  }
  std::vector<Segment>& segments = op.segments();
  const size_t first_segment = segments.size();
  Slice(op.request->segments, op.cursor, to - op.at, segments);
  op.at = to;
  if (below == nullptr) {
    Zero(std::span(segments).subspan(first_segment));
    segments.resize(first_segment);
    ThisTurn().zeroed += to - offset;
    return Cut::kNone;
  }
  piece = {.below = below,
           .offset = offset,
           .first_segment = first_segment,
           .segments = segments.size() - first_segment};
  return Cut::kPiece;
}

}  // namespace ringside
