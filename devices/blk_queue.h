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
#include "devices/blk_request.h"
#include "devices/device_reports.h"
#include "devices/queue_worker.h"

namespace ringside {

class BlkQueue final : public QueueWorker, private RequestOwner {
 public:
  // What it has of its device, on its I/O thread.
  struct Disk {
    BlockChannel& channel;
    const BlkView& view;
    const std::atomic<bool>& write_back;  // may change at any time
    DeviceReports* reports = nullptr;     // of requests that fail; null: nobody listens
  };

  BlkQueue(const Parts& parts, const Disk& disk, const QueueSetup& setup, uint64_t features);
  // Goes on where `before` has left off. What was recalled then is taken over.
  BlkQueue(const Parts& parts, const Disk& disk, BlkQueue& before);

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

  void Recall() override;
  void Forget() override;
  Slot& SlotAt(uint16_t head);
  template <typename Observer>
  void TakeAll(Observer observer);
  template <typename Observer>
  void Take(DescriptorChain chain, Observer& observer);
  void Fill(Slot& slot, const BlkParse& parse);
  template <typename Observer>
  void Begin(Slot& slot, Observer& observer);
  static void Done(BlockRequest& request);
  void Free(Slot& slot);
  void Complete(Slot& slot);
  void CompleteLast(Slot& slot);
  void Answer(DescriptorChain chain, std::byte* status_byte, BlkStatus status, uint32_t written);
  void Count(const BlkParse& parse, const BlockRequest& request);
  Segment* PopSegments();
  void PushSegments(Segment* segments);

  const Disk disk_;
  // Slots by head, each made anew for its request.
  std::unique_ptr<std::byte[]> slots_;
  Fifo<BlockRequest> recalled_;                            // of a queue that leaves
  ChainBuffers buffers_;                                   // of the chain at hand
  std::vector<std::unique_ptr<Segment[]>> free_segments_;  // kMaxFreeSegments at most
};

}  // namespace ringside
