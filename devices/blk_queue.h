// A request queue of virtio-blk on its I/O thread: chains become block requests, their results
// become used elements and interrupts. Requests live in an array indexed by descriptor head, so
// nothing is allocated on an I/O's way and an idle queue touches no memory.
//
// Threads: the I/O thread it was made on; the statistics may be read by any.
// Ownership: everything it is given outlives it; it goes only when idle().
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "base/counter.h"
#include "block/block_device.h"
#include "block/fifo.h"
#include "devices/blk_request.h"
#include "devices/latency_trace.h"
#include "devices/virtio_device.h"
#include "devices/virtqueue.h"
#include "poll/io_thread.h"

namespace ringside {

// Counted over the device's life, resets included.
struct BlkQueueStats {
  Counter reads, writes, flushes, discards, others;  // requests taken, by kind
  Counter bytes_read, bytes_written;
  Counter errors;      // requests answered with an error
  Counter batches;     // publications of the used ring
  Counter interrupts;  // publications that signalled; the others were suppressed by the driver
  Counter in_flight;   // no count: requests the channel has now
  Counter kicks_on, kicks_off;  // how often the driver was asked to kick, and not to

  uint64_t requests() const {
    return reads.Get() + writes.Get() + flushes.Get() + discards.Get() + others.Get();
  }
};

class BlkQueue final : public Source, private RequestOwner {
 public:
  struct Parts {
    const GuestMemory& memory;
    IoThread& io_thread;
    BlockChannel& channel;
    const BlkView& disk;
    const std::atomic<bool>& write_back;  // may change at any time
    BlkQueueStats& stats;
    VirtioEvents& events;
    Hook& idle_hook;                // queued at AtPublish when a stopped or leaving queue is idle
    LatencyTrace* trace = nullptr;  // null: no latencies are wanted
  };

  BlkQueue(const Parts& parts, const QueueSetup& setup, uint64_t features);
  // Goes on, on another thread, where `before` has left off: Leave was called and it became idle.
  // What was recalled then is taken over; Resume begins it anew.
  BlkQueue(const Parts& parts, BlkQueue& before);

  // Takes nothing more, shows the guest nothing more, and recalls what it has submitted.
  void Stop();
  // For one that is detached: takes nothing more, recalls what it has submitted, still shows the
  // guest what completes, and asks for kicks. The idle hook is queued with the last completion.
  void Leave();
  void Resume();
  bool idle() const { return parts_.stats.in_flight.Get() == 0; }

  bool HasWork() override { return !stopped_ && queue_.HasWork(); }
  void Run() override;
  void EnableNotify() override {
    parts_.stats.kicks_on.Add();
    queue_.EnableNotify();
  }
  void DisableNotify() override {
    parts_.stats.kicks_off.Add();
    queue_.DisableNotify();
  }

 private:
  static constexpr size_t kInlineSegments = 8;
  static constexpr size_t kBatch = 32;
  // Blocks of ChainBuffers::kMax that are kept for the next requests of many segments, 512 KiB.
  // What a deeper queue needs it allocates, and gives back: a guest's deepest moment is not for
  // good.
  static constexpr size_t kMaxFreeSegments = 32;

  struct Slot : BlockRequest {
    DescriptorChain chain;
    std::byte* status_byte;
    uint32_t written;
    Segment* many_segments;  // from the pool; null: few
    std::array<Segment, kInlineSegments> few_segments;
  };

  void Recall();
  Slot& SlotAt(uint16_t head);
  void Take(DescriptorChain chain);
  void TraceTaken(uint16_t head, const BlkParse& parse, const BlockRequest& request);
  void TraceSubmitted(uint16_t head);
  void Submit(Slot& slot, const BlkParse& parse);
  void HandOver(Slot& slot);
  static void Done(BlockRequest& request);
  static void TracedDone(BlockRequest& request);
  void Free(Slot& slot);
  void Complete(Slot& slot);
  void CompleteLast(Slot& slot);
  void Answer(DescriptorChain chain, std::byte* status_byte, BlkStatus status, uint32_t written);
  void Publish();
  void Count(const BlkParse& parse, const BlockRequest& request);
  Segment* PopSegments();
  void PushSegments(Segment* segments);
  void ReportIfBroken();

  const Parts parts_;
  const InterruptLine& call_;
  Virtqueue queue_;
  // Slots by head, each made anew for its request.
  std::unique_ptr<std::byte[]> slots_;
  Fifo<BlockRequest> recalled_;  // of a queue that leaves
  ChainBuffers buffers_;         // of the chain at hand
  std::vector<std::unique_ptr<Segment[]>> free_segments_;  // kMaxFreeSegments at most
  HookTo<BlkQueue, &BlkQueue::Publish> publish_hook_{*this};
  void (*const done_)(BlockRequest&);  // traced or not
  bool stopped_ = false;
  bool leaving_ = false;
  bool closing_ = false;  // either; as RequestOwner::recalls, for this thread
};

}  // namespace ringside
