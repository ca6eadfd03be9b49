// A queue pair at work on its I/O thread: block requests become commands, completions their
// results.
//
// A request is one command where it can be; where the device's limits or the shape of the memory
// do not allow that, it is a Transfer of several. What finds no slot waits, in order. While the
// controller is being reset the channel is frozen: what is in flight stays until Thaw sends it
// again, or Fail gives it up; either comes when the controller reaches no memory any more.
//
// Threads: the I/O thread's. Ownership: the device and the queue outlive it.
// Source: NVM Command Set Specification 1.0, section 3.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "base/counter.h"
#include "block/block_device.h"
#include "block/fifo.h"
#include "block/nvme_queue.h"
#include "block/op_memory.h"

namespace ringside {

// A namespace, as Identify tells.
struct NvmeNamespace {
  uint32_t id = 0;
  uint32_t block_size = 512;
  uint32_t most_bytes = kMostPrpBytes;  // of a command: a multiple of the block
  uint64_t boundary = 0;                // bytes that a command had better not cross; 0: none
  bool volatile_cache = false;
  BlockInfo info;
};

struct NvmeCounters {
  Counter commands, doorbells, splits, bounced, errors, resent, timeouts, stray_completions;
};

class NvmeChannel final : public BlockChannel {
 public:
  struct Parts {
    IoThread& io_thread;
    NvmeQueue& queue;
    const NvmeNamespace& ns;
    NvmeCounters& counters;
    const IovaOffsets& offsets;
    const std::atomic<bool>& cache_lost;  // the controller's: what was written may be gone
  };

  // Frozen at first. On an error the queue is closed.
  static absl::StatusOr<std::unique_ptr<NvmeChannel>> Create(const Parts& parts);
  ~NvmeChannel() override;

  void Submit(BlockRequest& request) override;

  // For the controller's thread, through NvmeQueue::OnIoThread.
  void Freeze();
  // The controller has the queue, new and empty.
  void Thaw();
  // It never will have it again.
  void Fail();
  enum class Remedy { kNone, kAbort, kReset };
  struct Overdue {
    Remedy remedy = Remedy::kNone;
    uint16_t id = 0;  // of the command to be aborted
  };
  // A command sent more than `limit` ticks before `now`: to be aborted the first time, and then
  // only a reset helps. Looks at the completions before it believes that.
  Overdue FindOverdue(uint32_t now, uint32_t limit);

 private:
  // A request that takes several commands.
  struct Transfer {
    BlockRequest* request;
    SegmentCursor cursor;  // what is left
    uint64_t offset;
    uint64_t left;
    unsigned in_flight;
    int result;
    bool flushes;  // at its end
    bool waits;    // in unfinished_
    Transfer* next = nullptr;
    Transfer* next_free = nullptr;
  };

  struct alignas(64) Slot {
    bool in_flight() const { return command.id != kNone; }

    static constexpr uint16_t kNone = 0xffff;
    nvme::Command command = {.id = kNone};
    BlockRequest* request = nullptr;
    Transfer* transfer = nullptr;  // null: the command is all of the request
    std::byte* bounce = nullptr;   // null: not copied
    SegmentCursor bounce_cursor;   // from where on
    uint32_t bytes = 0;
    bool aborted = false;
    uint8_t sends = 0;
    uint8_t generation = 0;
    Slot* next_free = nullptr;
  };
  // Of a command that fails or has no answer: the first time, after an abort, after a reset.
  static constexpr uint8_t kMostSends = 3;
  // Of one that was in flight when others had the controller reset, as far as one can tell.
  static constexpr uint8_t kMostSendsOfOthers = 8;

  class Completions final : public Source {
   public:
    explicit Completions(NvmeChannel& channel)
        : Source(channel.queue_.parts().interrupt), channel_(channel) {}
    bool HasWork() override { return !channel_.frozen_ && channel_.ring_.HasCompletion(); }
    void Run() override { channel_.Reap(); }
    void EnableNotify() override { channel_.LetInterruptsThrough(); }
    // Not before it is worth it: see Reap.
    void DisableNotify() override {}

   private:
    NvmeChannel& channel_;
  };

  explicit NvmeChannel(const Parts& parts);

  void Wait(BlockRequest& request);
  bool FillPages(Slot& slot, const BlockRequest& request);
  // Of a read, a write or a write of zeroes.
  void FillRange(nvme::Command& command, uint64_t offset, uint64_t bytes, uint32_t control) const {
    const uint64_t start = offset >> block_shift_;
    command.cdw10 = static_cast<uint32_t>(start);
    command.cdw11 = static_cast<uint32_t>(start >> 32);
    command.cdw12 = control | static_cast<uint32_t>((bytes >> block_shift_) - 1);
  }
  void Start(BlockRequest& request);
  int Check(const BlockRequest& request, uint64_t length) const;
  void StartTransfer(BlockRequest& request, uint64_t length);
  void StartDiscard(BlockRequest& request);
  void StartFlush(BlockRequest& request, Transfer* transfer);
  bool SendPieces(Transfer& transfer);
  void SendPiece(Transfer& transfer, uint32_t bytes);
  void GoOn();

  uint32_t FillTransfer(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                        uint64_t offset, uint64_t left);
  Prps FillData(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                uint32_t most);
  Prps FillBounce(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                  uint32_t most);
  void FillDiscard(Slot& slot, uint64_t offset, uint64_t bytes);

  Slot& TakeSlot(BlockRequest& request, Transfer* transfer);
  void Send(Slot& slot);
  void SendNow(Slot& slot);
  void RingDoorbell();
  void Reap();
  void TakeCompletions();
  void Complete(const nvme::Completion& completion);
  void CompleteWithError(Slot& slot, size_t index, nvme::Status status);
  void GiveBackBounce(Slot& slot, int result);
  void Finish(Slot& slot, size_t index, int result);
  void PieceIsDone(Transfer& transfer, int result);
  void FinishTransfer(Transfer& transfer);
  void FinishRequest(BlockRequest& request, int result);
  void FinishLater(BlockRequest& request, int result);
  void RunFinished();
  // Those in flight for which give_up(slot) is true are answered with -EIO.
  template <typename GiveUp>
  void GiveUpIf(GiveUp give_up);
  void LetInterruptsThrough();

  size_t IndexOf(const Slot& slot) const { return static_cast<size_t>(&slot - slots_.data()); }
  PrpList& ListOf(const Slot& slot) { return queue_.memory().lists[IndexOf(slot)]; }

  IoThread& io_thread_;
  NvmeQueue& queue_;
  const NvmeNamespace& ns_;
  NvmeCounters& counters_;
  const uint64_t* const offsets_;  // IovaOffsets
  NvmeWatch& watch_;
  uint32_t* const vector_control_;  // may be null
  const std::atomic<bool>& cache_lost_;
  const unsigned block_shift_;
  NvmeRing ring_;
  bool frozen_ = true;
  bool failed_ = false;
  bool must_wait_ = true;  // what is submitted: frozen, or behind others
  bool masked_ = false;
  bool reaped_ = false;  // since the interrupt was last let through
  Slot* free_ = nullptr;
  std::vector<std::byte*> free_bounces_;
  Fifo<Transfer> unfinished_;    // whose next command found no slot, or no bounce buffer
  Fifo<BlockRequest> waiting_;   // behind those
  Fifo<BlockRequest> finished_;  // without a command; to be reported by finished_hook_
  HookTo<NvmeChannel, &NvmeChannel::RingDoorbell> doorbell_hook_{*this};
  HookTo<NvmeChannel, &NvmeChannel::RunFinished> finished_hook_{*this};
  Completions completions_{*this};
  std::array<Slot, NvmeQueue::kSlots> slots_;
  SlabPool<Transfer> transfers_;
};

}  // namespace ringside
