// A channel whose requests meet the faults of a script on their way to the channel below.
//
// A request that meets none is passed on as it is. One that is delayed or hangs is held here; every
// 10 ms the channel looks whether it has been recalled, so that no fault holds up a reset, a move
// or the end of the machine. One that is short or torn becomes requests of this channel's own,
// whose segments are parts of its.
//
// Where the script has a power cut, what each write overwrites is read before it is begun. When the
// power goes off, requests fail with EIO from then on; once those under way have ended, what is
// lost is written back, and then the request that met the fault fails, too: who sees it end finds
// the disk as after the cut.
//
// Threads: the I/O thread's. The state and the counters outlive the channel, which gives the
// counters back. Nothing is allocated in the steady state.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"
#include "faults/fault_state.h"

namespace ringside {

struct FaultCounters : ChannelCounters {
  Named errors{*this, "fault_errors"};
  Named short_transfers{*this, "fault_short"};
  Named torn{*this, "fault_torn"};
  Named delayed{*this, "fault_delayed"};
  Named hung{*this, "fault_hung"};
  Named reordered{*this, "fault_reordered"};
  Named cuts{*this, "fault_cuts"};
  Named without_power{*this, "fault_without_power"};  // requests after the cut
};

class FaultChannel final : public BlockChannel {
 public:
  FaultChannel(IoThread& io_thread, std::unique_ptr<BlockChannel> below, FaultState& state,
               FaultCounters& counters);
  ~FaultChannel() override;

  void Submit(BlockRequest& request) override;
  void Cancel() override;

 private:
  static constexpr int64_t kNever = INT64_MAX;
  // How often held requests are looked at, and the longest that one waits for others to be
  // reordered with.
  static constexpr int64_t kLookNs = 10'000'000;
  // The same for who waits until nothing changes the disk any more.
  static constexpr int64_t kQuietLookNs = 1'000'000;
  static constexpr size_t kMostPutBack = 256;  // sectors in a request

  // A request that is held, or what it has become.
  struct Op {
    struct Below : BlockRequest {
      Op* above = nullptr;
    };
    Below below;
    FaultChannel* channel = nullptr;
    BlockRequest* request = nullptr;
    void (FaultChannel::*ended)(Op&) = nullptr;  // what comes after the request below
    int64_t due_ns = 0;
    uint64_t random = 0;
    uint64_t at = 0;  // bytes into the request
    uint64_t flush_begun_at = 0;
    FaultState::Write* write = nullptr;
    std::vector<Segment> segments;  // of the request below, where they are not the request's own
    Op* next = nullptr;
    Op* next_free = nullptr;
  };

  Op& NewOp(BlockRequest& request, uint64_t random = 0);
  void Meet(const FaultRule& rule, Op& op);
  void PassOn(BlockRequest& request);
  void PassOnAndFree(Op& op);
  // Submits the request below for `length` bytes of the request from `at` on.
  void SubmitBelow(Op& op, uint64_t at, uint64_t length);
  void End(Op& op, int result);
  // In a later step of the turn, as `done` is not called from within Submit.
  void EndLater(BlockRequest& request, int result);
  void EndAll();

  // Short and torn.
  void BeginInPart(const FaultRule& rule, Op& op);
  void PartEnded(Op& op);
  void NextTornRun(Op& op);
  void TornRunEnded(Op& op);

  // Held.
  void Hold(Op& op, int64_t due_ns);
  void Shuffle(Op& op, uint32_t together);
  void ReleaseShuffled();
  bool GivesUp(Op& op);
  void LookAtHeld(int64_t now_ns);
  void LookNow();
  void SetTimer(int64_t at_ns);

  // Where there is a power cut (faults/fault_cut.cc).
  bool IsFollowed(const BlockRequest& request) const;
  void Follow(BlockRequest& request);
  void FollowFlush(BlockRequest& request);
  void FollowWrite(Op& op);
  void ReadBefore(Op& op);
  void BeforeImageEnded(Op& op);
  void SubmitFollowed(Op& op);
  void FollowedEnded(Op& op);
  void FlushEnded(Op& op);
  void CutPower(Op& op);
  void PutBack();
  void PutBackNext();
  void PutBackEnded(Op& op);
  void PutBackFlushed(Op& op) { CutIsOver(op.below.result); }
  void CutIsOver(int result);

  IoThread& io_thread_;
  const std::unique_ptr<BlockChannel> below_;
  FaultState& state_;
  FaultCounters& counters_;
  SlabPool<Op> ops_;
  Fifo<Op> held_;
  std::vector<Op*> shuffled_;
  int64_t shuffled_due_ns_ = kNever;
  int64_t timer_at_ns_ = 0;
  Fifo<BlockRequest> ended_;
  bool cancelled_ = false;
  Op* cut_ = nullptr;  // that has cut the power, until what is lost has been put back
  CutReport lost_;
  bool puts_back_ = false;
  size_t next_range_ = 0;   // of lost_.lost
  size_t next_sector_ = 0;  // of that
  HookTo<FaultChannel, &FaultChannel::EndAll> end_all_{*this};
  HookTo<FaultChannel, &FaultChannel::LookNow> look_now_{*this};
  TimerTo<FaultChannel, &FaultChannel::LookAtHeld> timer_{*this};
};

}  // namespace ringside
