// A request queue of virtio-blk on its I/O thread: chains become block requests, their results
// become used elements and interrupts. Requests live in an array indexed by descriptor head, so
// nothing is allocated on an I/O's way and an idle queue touches no memory.
//
// Threads and ownership: as QueueWorker.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "block/block_device.h"
#include "block/fifo.h"
#include "block/throttle_gate.h"
#include "devices/blk_request.h"
#include "devices/device_reports.h"
#include "devices/queue_worker.h"
#include "ringside/config.h"

namespace ringside {

class BlkQueue final : public QueueWorker, private RequestOwner {
 public:
  // What it has of its device, on its I/O thread.
  struct Disk {
    BlockChannel& channel;
    const BlkView& view;
    const std::atomic<bool>& write_back;  // may change at any time
    DiskThrottle& throttle;
    DeviceReports* reports = nullptr;  // of requests that fail; null: nobody listens
    // What becomes of those, reads and all others. What is kept waits for the next Resume.
    ErrorAction rerror = ErrorAction::kReport;
    ErrorAction werror = ErrorAction::kReport;
  };

  BlkQueue(const Parts& parts, const Disk& disk, const QueueSetup& setup, uint64_t features);
  // Goes on where `before` has left off. What was recalled then is taken over.
  BlkQueue(const Parts& parts, const Disk& disk, BlkQueue& before);

  ~BlkQueue() override;

  void Run() override;
  void Resume() override;

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

  struct Throttling;

  void Recall() override;
  void Drains() override;
  void Forget() override;
  Slot& SlotAt(uint16_t head);
  void BeginThrottling();
  ThrottleGate& BeginToAsk(uint32_t version);
  uint64_t BytesTaken() const;
  void WalkAhead(const DescriptorChain& chain, ThreeBuffers& buffers);
  template <typename Observer>
  void TakeAll(Observer observer, ThrottleGate* gate);
  template <typename Observer>
  bool Take(DescriptorChain& chain, const ThreeBuffers& three, Observer& observer,
            ThrottleGate* gate);
  template <typename Observer>
  bool TakeTransfer(Slot& slot, DescriptorChain& chain, const ThreeBuffers& buffers,
                    Observer& observer, ThrottleGate* gate);
  void Fill(Slot& slot, const BlkParse& parse);
  template <typename Observer>
  void Begin(Slot& slot, Observer& observer);
  static void Done(BlockRequest& request);
  void Free(Slot& slot);
  void Complete(Slot& slot);
  void CompleteLast(Slot& slot);
  void CompleteFailed(Slot& slot);
  void Finish(Slot& slot, BlkStatus status);
  ErrorAction ActionOn(const BlockRequest& request) const;
  bool IsKept(const BlockRequest& request) const;
  void Keep(Slot& slot);
  void Answer(DescriptorChain chain, std::byte* status_byte, BlkStatus status, uint32_t written);
  void Count(const BlkParse& parse, const BlockRequest& request);
  Segment* PopSegments();
  void PushSegments(Segment* segments);
  void HoldBackFrom(std::span<DescriptorChain> chains);
  void AskAgain(int64_t now_ns);
  void EndWait();

  const Disk disk_;
  // Slots by head, each made anew for its request.
  std::unique_ptr<std::byte[]> slots_;
  // To be begun anew by Resume: of a queue that leaves, and those that failed and are kept.
  Fifo<BlockRequest> recalled_;
  ChainBuffers buffers_;                                   // of the chain at hand
  std::vector<std::unique_ptr<Segment[]>> free_segments_;  // kMaxFreeSegments at most
  std::unique_ptr<Throttling> throttling_;                 // null: there has been no limit yet
};

}  // namespace ringside
