// A channel of an overlay: requests go straight to the overlay's file or to its base where one of
// them has all that they need, and become several requests where not.
//
// Straight: a read of blocks that are in the same place; a write of blocks whose data is in the
// overlay's file already. It costs a look at the map and an addition. Anything else:
//
//   a read      is cut where its blocks are in different places, a little at a time: in a chain of
//               overlays each cuts what the one above it has cut, so what one has under way below
//               it has a bound for all of its reads together
//   a write     to blocks of which some show the base, or zeroes: these are written whole, and what
//               the write has not of them is read from below; then the map says that they are here
//   a discard,  makes zeroes of whole blocks in the map, and gives their space back; of blocks that
//   zeroes      it has parts of it writes zeroes
//   a flush     is a commit (overlay_commit.h)
//
// Those that change blocks the slow way come one after the other in each block (busy_blocks.h),
// whatever channel they are of. So two writes to one block that shows the base lose nothing.
//
// Threads: the I/O thread's; what others send it goes through its inbox. Nothing is allocated in
// the steady state, and what copies need is bounded.
#pragma once

#include <memory>
#include <vector>

#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"
#include "overlay/overlay_commit.h"
#include "overlay/overlay_counters.h"
#include "overlay/overlay_op.h"
#include "overlay/overlay_state.h"

namespace ringside {

class OverlayChannel final : public BlockChannel, private OverlayCommit::Owner {
 public:
  // `base` is null where there is none. `info` is the overlay's and outlives the channel, as the
  // state does and the counters, which the channel gives back.
  OverlayChannel(IoThread& io_thread, std::unique_ptr<BlockChannel> file,
                 std::unique_ptr<BlockChannel> base, const BlockInfo& info, OverlayState& state,
                 OverlayCounters& counters);
  ~OverlayChannel() override;

  void Submit(BlockRequest& request) override;
  void Cancel() override;

 private:
  // How often those that wait are asked whether they have been recalled.
  static constexpr int64_t kLookNs = 10'000'000;
  static constexpr size_t kMostCopies = 64;  // 512 KiB
  // Of all reads, under way; but one is every read's, so that none waits for another and each goes
  // on. A read takes half of what is left, so that those that come later get more than that one.
  static constexpr size_t kMostPieces = 128;
  static constexpr size_t kMostOfOne = kMostPieces / 2;
  // Segments of children: an op has a list of its own for so many, which it keeps, and with more
  // one of those that all share; of these so many are kept.
  static constexpr size_t kFewSegments = 128;
  static constexpr size_t kManySegments = 1024 + kMostOfOne;
  static constexpr size_t kKeptLists = 32;  // 544 KiB
  static constexpr uint64_t kZeroedATurn = uint64_t{256} << 10;
  // Of discards: 256 MiB. Those that find nothing left of it do 16 MiB each, so that none is
  // overtaken for ever.
  static constexpr uint64_t kBlocksATurn = uint64_t{64} << 10;
  static constexpr uint64_t kLeastBlocks = uint64_t{4} << 10;

  // What all requests together have done in the turn at hand, of what a turn does a part of.
  struct Turn {
    uint64_t number = 0;
    uint64_t zeroed = 0;     // bytes of reads
    uint64_t discarded = 0;  // blocks
  };

  struct Piece {
    BlockChannel* below;
    uint64_t offset;
    size_t first_segment;
    size_t segments;
  };
  enum class Cut { kPiece, kNone, kLater };
  using Op = OverlayOp;

  bool IsWithin(const BlockRequest& request, uint64_t length) const;
  void SubmitSlowly(BlockRequest& request);
  int Refuses(const BlockRequest& request, uint64_t length) const;
  Op& NewOp(BlockRequest& request, uint64_t length);
  BlockState StateOf(uint64_t block) const { return map_.StateOf(block); }
  static uint64_t EndByte(const Op& op) { return op.request->offset + op.length; }

  // Children (overlay_channel.cc).
  void SubmitChild(Op& op, BlockChannel& below, BlockOp what, uint64_t offset,
                   std::span<const Segment> segments);
  void SubmitRange(Op& op, BlockOp what, uint64_t offset, uint64_t length);
  OverlayChild& NewChild(Op& op, BlockOp what, uint64_t offset);
  void ChildEnded(OverlayChild& child);
  void Finish(Op& op);
  void Complete(Op& op);
  void CompleteAll();
  std::vector<Segment>& EmptyList(Op& op);
  void GiveList(Op& op);
  void Later(Op& op, Op::Step then);
  void RunLater();
  Turn& ThisTurn();
  bool GivesUp(const Op& op) const { return cancelled_ || op.request->recalled(); }

  // Reads (overlay_reads.cc).
  bool IsAllOfBase(const BlockRequest& request, uint64_t length) const;
  size_t PiecesForOne() const;
  void ReadOn(Op& op);
  BlockChannel* Below(BlockState state, uint64_t at) const;
  bool MayZero();
  Cut CutPiece(Op& op, Piece& piece);

  // Writes (overlay_writes.cc).
  void BeginChange(Op& op);
  void Change(Op& op);
  void FillEnds(Op& op);
  void FillBlock(Op& op, uint64_t block, size_t place);
  void WriteData(Op& op);
  void DataWritten(Op& op);
  void Changed(Op& op);
  void WriteDurably(Op& op);
  void WrittenDurably(Op& op);
  void Abandon(Op& op, int result);
  void LeaveBlocks(Op& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  bool TakeCopies(Op& op, Op::Step then);
  void GiveCopies(Op& op);

  // Discards and zeroes (overlay_zeroes.cc).
  ZeroedParts PartsOf(const Op& op) const;
  void FillEdges(Op& op);
  void ZeroEdges(Op& op);
  void EdgesZeroed(Op& op);
  void ZeroWhole(Op& op);

  // Waiting (overlay_waits.cc).
  void WantCommit(Op& op, Op::Step then);
  void CommitEnded(int result) override;
  void TakeUpCommit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void Waits(Op& op, Op::Wait wait, Op::Step then);
  void WaitsNoMore(Op& op);
  // With the state's lock, which the analysis does not know for that of another channel.
  void Wake(Op& op) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void WakeToLead() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void Post() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void RunInbox();
  void LookAtWaiting(int64_t now_ns);
  void LookNow();
  bool TakeBack(Op& op);

  IoThread& io_thread_;
  const std::unique_ptr<BlockChannel> file_;
  const std::unique_ptr<BlockChannel> base_;
  const BlockInfo& info_;
  OverlayState& state_;
  const BlockMap& map_;
  const uint64_t data_offset_;
  OverlayCounters& counters_;
  OverlayCommit commit_;

  SlabPool<Op> ops_;
  SlabPool<OverlayChild> children_;
  std::vector<std::unique_ptr<std::vector<Segment>>> free_lists_;
  std::vector<std::unique_ptr<CopyBuffer>> all_copies_;
  std::vector<CopyBuffer*> free_copies_;
  WaitList want_copies_;
  Fifo<Op> finished_;  // to be completed by complete_
  size_t pieces_ = 0;  // of reads, under way
  Turn turn_;
  Fifo<Op> later_;
  bool runs_later_ = false;  // those of later_, which go first
  Fifo<Op> ended_;           // that were taken back
  std::vector<Op*> waiting_;
  bool submitting_ = false;
  bool cancelled_ = false;

  Fifo<Op> inbox_ ABSL_GUARDED_BY(state_.mutex);           // whose turn has come
  bool leads_next_ ABSL_GUARDED_BY(state_.mutex) = false;  // the next commit is this channel's
  // The task is on its way, and takes what is in the inbox by then.
  bool posted_ ABSL_GUARDED_BY(state_.mutex) = false;

  TaskTo<OverlayChannel, &OverlayChannel::RunInbox> run_inbox_{*this};
  HookTo<OverlayChannel, &OverlayChannel::CompleteAll> complete_{*this};
  HookTo<OverlayChannel, &OverlayChannel::RunLater> run_later_{*this};
  HookTo<OverlayChannel, &OverlayChannel::LookNow> look_now_{*this};
  TimerTo<OverlayChannel, &OverlayChannel::LookAtWaiting> look_{*this};
};

}  // namespace ringside
