// A namespace at work on its I/O thread through the kernel's driver: requests become commands on a
// ring, completions their results.
//
// The ring is the I/O thread's, if that takes commands: then they go with the thread's next call,
// which mostly is the one that sleeps. Otherwise the channel has one of its own, whose completions
// are a source.
//
// Their way is NvmeRequests'. Time-outs, aborts and resets are the kernel driver's: it answers
// every command.
//
// Threads: the I/O thread's. Ownership: what it is given outlives it.
#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "block/fifo.h"
#include "nvme/nvme_command_ring.h"
#include "nvme/nvme_requests.h"
#include "nvme/nvme_vectors.h"

namespace ringside {

struct NvmePassthroughCounters : ChannelCounters {
  Named commands{*this, "commands"};  // sent, resent ones too
  Named enters{*this, "enters"};      // io_uring_enter calls of rings of its own
  Named splits{*this, "splits"};      // requests that took several commands
  Named bounced{*this, "bounced"};    // commands whose memory was copied, here or by the kernel
  Named errors{*this, "errors"};      // requests that failed
  Named resent{*this, "resent"};      // commands
};

class NvmePassthroughChannel;

struct NvmePassthroughSlot final : UringOp {
  static constexpr size_t kInlineVectors = 8;

  void Complete(int32_t result) override;

  NvmePassthroughChannel* channel = nullptr;
  nvme_uring_cmd command = {};
  uint32_t operation = NVME_URING_CMD_IO;
  uint8_t sends = 0;
  BlockRequest* request = nullptr;
  NvmeTransfer* transfer = nullptr;  // null: the command is all of the request
  std::byte* bounce = nullptr;       // null: not copied here
  SegmentCursor bounce_cursor;       // from where on
  nvme::DsmRange range = {};
  VectorBlock* block = nullptr;  // instead of vectors, for more than these are
  std::array<iovec, kInlineVectors> vectors;
  NvmePassthroughSlot* next = nullptr;  // to be sent, or withdrawn
  NvmePassthroughSlot* next_free = nullptr;
};

class NvmePassthroughChannel final
    : public NvmeRequests<NvmePassthroughChannel, NvmePassthroughSlot, NvmePassthroughCounters> {
 public:
  struct Parts {
    IoThread& io_thread;
    int file;  // the namespace's generic character device
    const NvmeNamespace& ns;
    const NvmeVectorLimits& limits;
    NvmePassthroughCounters& counters;  // given back at the end, also if Create fails
  };

  // FailedPrecondition where there is no ring for it.
  static absl::StatusOr<std::unique_ptr<NvmePassthroughChannel>> Create(const Parts& parts);
  ~NvmePassthroughChannel() override;

  void Submit(BlockRequest& request) override;
  // Asks the kernel for what is under way: it gives back what waits for a thread of its own, and
  // not what its driver has begun.
  void Cancel() override;

 private:
  friend NvmeRequests;
  friend NvmePassthroughSlot;
  using Slot = NvmePassthroughSlot;
  static constexpr unsigned kSlots = 256;

  class Completions final : public Source {
   public:
    Completions(NvmePassthroughChannel& channel, int wake_fd)
        : Source(wake_fd), channel_(channel) {}
    bool HasWork() override { return channel_.ring_->HasCompletions(); }
    void Run() override { channel_.Reap(); }
    // The kernel shows what has completed before it looks whether to write the eventfd, with a
    // locked instruction in between.
    void EnableNotify() override { channel_.ring_->Notify(true); }
    void DisableNotify() override { channel_.ring_->Notify(false); }

   private:
    NvmePassthroughChannel& channel_;
  };

  NvmePassthroughChannel(const Parts& parts, EventFd wake);

  absl::Status MakeBounce();
  absl::Status Connect();
  bool FillOne(Slot& slot, const BlockRequest& request);
  uint32_t FillTransfer(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                        uint64_t offset, uint64_t left);
  uint32_t FillData(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                    uint32_t most);
  uint32_t FillBounce(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                      uint32_t most);
  void FillDiscard(Slot& slot, uint64_t offset, uint64_t bytes);
  void FillFlush(Slot& slot);
  // What the command moves, or 0 bytes for none.
  static void SetData(Slot& slot, const void* address, uint32_t bytes);
  bool FlushIsVain() const { return false; }
  void WaitersChanged() {}  // the kernel's driver bounds the time of those before them

  void Send(Slot& slot);
  void PassOn();
  bool Push(Slot& slot);
  void Reap();
  void Complete(Slot& slot, int32_t result);
  bool SendAgain(Slot& slot, int32_t result);
  void GiveBackMemory(Slot& slot, int result);
  void FinishWithdrawn();

  NvmeVectorLimits limits_;
  const int file_;
  const EventFd wake_;
  Uring* shared_ring_ = nullptr;           // the thread's
  int registered_file_ = 0;                // with it
  std::unique_ptr<NvmeCommandRing> ring_;  // or its own
  OpMemory memory_;
  Completions completions_{*this, wake_.fd()};
  HookTo<NvmePassthroughChannel, &NvmePassthroughChannel::PassOn> hand_over_hook_{*this};
  HookTo<NvmePassthroughChannel, &NvmePassthroughChannel::FinishWithdrawn> withdrawn_hook_{*this};
  Fifo<Slot> to_send_;
  Fifo<Slot> withdrawn_;  // by Cancel; still to be answered
  std::array<Slot, kSlots> slots_;
};

}  // namespace ringside
