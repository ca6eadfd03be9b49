// A queue pair at work on its I/O thread: block requests become commands, completions their
// results.
//
// Their way is NvmeRequests'. While the controller is being reset the channel is frozen: what is in
// flight stays until Thaw sends it again, or Fail gives it up; either comes when the controller
// reaches no memory any more.
//
// Threads: the I/O thread's. Ownership: the device and the queue outlive it.
// Spec: NVM Command Set Specification 1.0, section 3.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/log_limit.h"
#include "block/block_device.h"
#include "nvme/nvme_queue.h"
#include "nvme/nvme_requests.h"

namespace ringside {

struct NvmeCounters : ChannelCounters {
  Named commands{*this, "commands"};    // sent, resent ones too
  Named doorbells{*this, "doorbells"};  // registers written, submission and completion
  Named splits{*this, "splits"};        // requests that took several commands
  Named bounced{*this, "bounced"};      // requests copied because PRP cannot express their memory
  Named errors{*this, "errors"};        // requests that failed
  Named resent{*this, "resent"};        // commands, after an abort or a reset
  Named timeouts{*this, "timeouts"};    // commands
  Named stray_completions{*this, "stray_completions"};  // for commands that were not in flight
};

struct alignas(64) NvmeSlot {
  bool in_flight() const { return command.id != kNone; }

  static constexpr uint16_t kNone = 0xffff;
  nvme::Command command = {.id = kNone};
  BlockRequest* request = nullptr;
  NvmeTransfer* transfer = nullptr;  // null: the command is all of the request
  std::byte* bounce = nullptr;       // null: not copied
  SegmentCursor bounce_cursor;       // from where on
  uint32_t bytes = 0;
  bool overdue = false;  // once already: its time-out led to an abort, or to a reset
  uint8_t sends = 0;
  uint8_t generation = 0;
  NvmeSlot* next_free = nullptr;
};

class NvmeChannel final : public NvmeRequests<NvmeChannel, NvmeSlot, NvmeCounters> {
 public:
  struct Parts {
    IoThread& io_thread;
    NvmeQueue& queue;
    const NvmeNamespace& ns;
    NvmeCounters& counters;
    const IovaOffsets& offsets;
    const std::atomic<bool>& cache_lost;  // the controller's: what was written may be gone
    const std::string& name;              // of the controller, in messages
    LogLimit& log;                        // for commands that fail
  };

  // Frozen at first. On an error the queue is closed.
  static absl::StatusOr<std::unique_ptr<NvmeChannel>> Create(const Parts& parts);
  ~NvmeChannel() override;

  void Submit(BlockRequest& request) override;
  // What is in flight ends when the controller cannot reach its memory any more: see
  // NvmeQueue::Cancel.
  void Cancel() override;

  // For the controller's thread, through NvmeQueue::OnIoThread.
  void Freeze();
  // The controller has the queue, new and empty.
  void Thaw();
  // It never will have it again.
  void Fail();
  enum class Remedy { kNone, kAbort, kReset };
  struct Overdue {
    Remedy remedy = Remedy::kNone;
    uint16_t id = 0;          // of the command to be aborted
    uint32_t ticks_left = 0;  // for that, before only a reset helps
  };
  // The oldest command sent more than `limit` ticks before `now`: to be aborted the first time, and
  // another `limit` later only a reset helps, however long others were aborted first. Looks at the
  // completions before it believes that.
  Overdue FindOverdue(uint32_t now, uint32_t limit);
  // A reset is due. Those that it finds so old count as if they were its reason.
  void MarkOverdue(uint32_t now, uint32_t limit);
  // Fails the requests that have waited for a slot for more than `limit` ticks; how many there
  // were. One that comes when others wait already is found up to as many ticks later.
  uint64_t FailOverdueWaiters(uint32_t now, uint32_t limit);

 private:
  friend NvmeRequests;
  using Slot = NvmeSlot;
  // Of one that was in flight when others had the controller reset, as far as one can tell.
  static constexpr uint8_t kMostSendsOfOthers = 8;

  class Completions final : public Source {
   public:
    explicit Completions(NvmeChannel& channel)
        : Source(channel.queue_.parts().interrupt), channel_(channel) {}
    // The thread does not sleep before an interrupt would wake it.
    bool HasWork() override {
      return !channel_.frozen_ && (channel_.ring_.HasCompletion() || channel_.unmasking_);
    }
    void Run() override { channel_.Reap(); }
    void EnableNotify() override { channel_.LetInterruptsThrough(); }
    // Not before it is worth it: see Reap.
    void DisableNotify() override {}

   private:
    NvmeChannel& channel_;
  };

  explicit NvmeChannel(const Parts& parts);

  bool FillPages(Slot& slot, const BlockRequest& request);
  uint32_t FillTransfer(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                        uint64_t offset, uint64_t left);
  Prps FillData(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                uint32_t most);
  Prps FillBounce(Slot& slot, const BlockRequest& request, const SegmentCursor& cursor,
                  uint32_t most);
  void FillDiscard(Slot& slot, uint64_t offset, uint64_t bytes);
  void FillFlush(Slot& slot);
  void WaitersChanged();
  bool FlushIsVain() const { return cache_lost_.load(std::memory_order_relaxed); }

  void Send(Slot& slot);
  void SendNow(Slot& slot);
  void RingDoorbell();
  void Reap();
  void TakeCompletions();
  void Complete(const nvme::CompletionEnd& end);
  void CompleteWithError(Slot& slot, size_t index, nvme::Status status);
  void GiveBackBounce(Slot& slot, int result);
  void Finish(Slot& slot, size_t index, int result);
  // Those in flight for which give_up(slot) is true are answered with failure_.
  template <typename GiveUp>
  void GiveUpIf(GiveUp give_up);
  void LetInterruptsThrough();

  size_t IndexOf(const Slot& slot) const { return static_cast<size_t>(&slot - slots_.data()); }
  // In ticks since it was sent. 0: nothing is in flight.
  uint32_t AgeOf(const Slot& slot, uint32_t now) const {
    const uint32_t sent = queue_.sent_at(IndexOf(slot)).load(std::memory_order_relaxed);
    return sent == 0 ? 0 : now - sent;
  }
  PrpList& ListOf(const Slot& slot) { return queue_.memory().lists[IndexOf(slot)]; }

  NvmeQueue& queue_;
  const uint64_t* const offsets_;  // IovaOffsets
  NvmeWatch& watch_;
  PciDevice& device_;
  const std::atomic<bool>& cache_lost_;
  NvmeRing ring_;
  uint64_t looked_at_ = 0;  // of waited_, when queue_.waits_since() was set
  bool frozen_ = true;
  bool masked_ = false;
  bool unmasking_ = true;  // not in force yet; at first it is as the one before has left it
  bool reaped_ = false;    // since the interrupt was last let through
  std::vector<std::byte*> free_bounces_;
  HookTo<NvmeChannel, &NvmeChannel::RingDoorbell> doorbell_hook_{*this};
  Completions completions_{*this};
  std::array<Slot, NvmeQueue::kSlots> slots_;
  const std::string& name_;
  LogLimit& log_;
};

}  // namespace ringside
