// A virtio-blk device: configuration space and features in front of a BlockDevice, and its request
// queues spread over I/O threads, round-robin, with one channel a thread.
//
// Threads: as VirtioDevice; the statistics from any.
// Ownership: the block device, guest memory and the I/O threads outlive it; it is reset before it
// goes.
// Source: VIRTIO 1.2, section 5.2.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "block/block_device.h"
#include "devices/blk_queue.h"
#include "devices/virtio_device.h"

namespace ringside {

struct VirtioBlkConfig {
  std::string serial;   // at most 20 bytes; what the guest reads as the disk's id
  uint16_t queues = 1;  // 1 to VirtioBlk::kMaxQueues
  bool trace_latency = false;
};

class VirtioBlk final : public VirtioDevice {
 public:
  static constexpr uint16_t kMaxQueues = 16;
  static constexpr uint16_t kQueueSize = 256;

  // `io_threads` is not empty.
  VirtioBlk(BlockDevice& disk, const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
            const VirtioBlkConfig& config);
  ~VirtioBlk() override;

  const BlkQueueStats& stats(uint16_t queue) const { return stats_[queue]; }
  // Over the device's life, resets included; null if not wanted. To be read while the device is
  // reset.
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
  class Part;
  struct Config;
  Config MakeConfig() const;
  void SetWriteBack(uint64_t features);
  void PartIsDown();

  BlockDevice& disk_;
  const GuestMemory& memory_;
  BlkView view_;
  std::vector<BlkQueueStats> stats_;                   // by queue
  std::vector<std::unique_ptr<LatencyTrace>> traces_;  // by queue; null if not wanted
  uint8_t writeback_field_;                            // of the configuration
  std::atomic<bool> write_back_{true};                 // what it and the features make of writes
  std::vector<std::unique_ptr<Part>> parts_;           // by I/O thread
  std::atomic<size_t> parts_up_{0};
  Task* reset_done_ = nullptr;
};

}  // namespace ringside
