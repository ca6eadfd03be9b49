// A virtio-blk device: configuration space and features in front of a BlockDevice, and its request
// queues spread over I/O threads, with one channel a thread.
//
// Threads: as VirtioDevice; the statistics, MoveQueue and io_thread from any.
// Ownership: the block device, guest memory and the I/O threads outlive it; it is reset, and no
// queue of it is moving, before it goes.
// Source: VIRTIO 1.2, section 5.2.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/sync.h"
#include "block/block_device.h"
#include "devices/blk_queue.h"
#include "devices/movable_queue.h"
#include "devices/virtio_device.h"

namespace ringside {

struct VirtioBlkConfig {
  std::string serial;   // at most 20 bytes; what the guest reads as the disk's id
  uint16_t queues = 1;  // 1 to VirtioBlk::kMaxQueues
  bool trace_latency = false;
};

class VirtioBlk final : public VirtioDevice, private MovableQueue::Owner {
 public:
  static constexpr uint16_t kMaxQueues = 16;
  static constexpr uint16_t kQueueSize = 256;

  // Queue i is served by io_threads[i], and by the first ones again where there are fewer of them.
  // There is one at least.
  VirtioBlk(BlockDevice& disk, const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
            const VirtioBlkConfig& config);
  ~VirtioBlk() override;

  const BlkQueueStats& stats(uint16_t queue) const { return stats_[queue]; }
  // Has `to` serve the queue, in the middle of I/O, too; nothing is lost or done twice. What is in
  // flight is waited for: however long the storage takes. See MovableQueue::MoveTo for `done`.
  void MoveQueue(uint16_t queue, IoThread& to, MovableQueue::MoveDone done);
  // Once a reset has begun, which is the last: see BlockChannel::Cancel. Any thread.
  void Cancel();
  // Requests that the block device has now. Any thread.
  uint64_t in_flight() const;
  // See MovableQueue::io_thread.
  IoThread& io_thread(uint16_t queue) const { return queues_[queue]->io_thread(); }
  // See MovableQueue::TakeKicks.
  uint64_t TakeKicks(uint16_t queue, const IoThread& here, const EventFd& kick) {
    return queues_[queue]->TakeKicks(here, kick);
  }
  // Over the device's life, resets and moves included; null if not wanted. To be read while the
  // device is reset.
  const LatencyTrace* trace(uint16_t queue) const { return traces_[queue].get(); }

  uint16_t id() const override { return 2; }
  uint64_t features() const override;
  uint16_t queue_count() const override { return static_cast<uint16_t>(stats_.size()); }
  uint16_t max_queue_size() const override { return kQueueSize; }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override;
  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& events) override;
  void Reset(Task& done) override;

 private:
  struct Config;
  Config MakeConfig() const;
  void SetWriteBack(uint64_t features);
  BlkPart& PartOn(IoThread& io_thread);
  void QueueIsDown() override;

  BlockDevice& disk_;
  const GuestMemory& memory_;
  BlkView view_;
  std::vector<BlkQueueStats> stats_;                   // by queue
  std::vector<std::unique_ptr<LatencyTrace>> traces_;  // by queue; null if not wanted
  uint8_t writeback_field_;                            // of the configuration
  std::atomic<bool> write_back_{true};                 // what it and the features make of writes
  std::vector<std::unique_ptr<MovableQueue>> queues_;
  std::atomic<size_t> queues_up_{0};
  Task* reset_done_ = nullptr;
  Mutex mutex_;
  // One for each I/O thread that has had a queue. They wait for their threads at their end, so they
  // go before what those threads use.
  std::vector<std::unique_ptr<BlkPart>> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
