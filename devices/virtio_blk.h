// A virtio-blk device: configuration space and features in front of a BlockDevice, and its request
// queues spread over I/O threads, with one channel a thread.
//
// Threads and ownership: as QueuedDevice; the block device outlives it.
// Spec: VIRTIO 1.2, section 5.2.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "block/block_device.h"
#include "devices/blk_queue.h"
#include "devices/queued_device.h"

namespace ringside {

struct VirtioBlkConfig {
  std::string serial;   // at most 20 bytes; what the guest reads as the disk's id
  uint16_t queues = 1;  // 1 to VirtioBlk::kMaxQueues
  bool trace_latency = false;
  DeviceReports* reports = nullptr;  // of requests that fail; null: nobody listens
  DiskThrottle* throttle = nullptr;  // null: it has no limits
  ErrorAction rerror = ErrorAction::kReport;
  ErrorAction werror = ErrorAction::kReport;
};

class VirtioBlk final : public QueuedDevice {
 public:
  static constexpr uint16_t kMaxQueues = 16;
  static constexpr uint16_t kQueueSize = 256;

  static constexpr size_t kConfigSize = 60;  // as far as section 5.2.4 goes

  // See QueuedDevice.
  VirtioBlk(BlockDevice& disk, const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
            const VirtioBlkConfig& config);
  ~VirtioBlk() override;

  // What the driver reads from now on, no smaller than before: of a disk that has grown so far. For
  // VirtioTransport::ChangeConfig.
  void SetSize(uint64_t bytes) { view_.info.size.Set(bytes); }

  // Of a device whose queues rest and do not move: its requests go to `next` from now on, those
  // that it keeps too. `next` is as large at least, has blocks of the same size and can do what the
  // driver was told the disk can. On an error nothing has changed. When this returns nothing uses
  // the disk before. Waits for a turn of each I/O thread.
  absl::Status Exchange(BlockDevice& next);

  // Of a device whose queues rest and do not move: has what the guest has written be durable, as if
  // it had asked for that. Waits for the storage; once `is_over` says so, only for what that has
  // begun. 0 or -errno.
  int Flush(absl::FunctionRef<bool()> is_over);

  // See BlockChannel::Cancel.
  void Cancel() override;
  void Forget(IoThread& io_thread) override;

  // FailedPrecondition while it keeps requests that failed: they are taken and not answered, which
  // the position of a queue does not say.
  absl::Status CheckSaved() const override;
  // Configuration space as the driver reads it. It may have changed one byte of it, `writeback`;
  // the others are there to be compared, since drivers read them once.
  std::vector<uint8_t> SaveState() const override;
  absl::Status CheckState(std::span<const uint8_t> state) const override;
  void RestoreState(std::span<const uint8_t> state) override;

  uint16_t id() const override { return 2; }
  uint32_t pci_class() const override { return 0x010000; }  // mass storage, SCSI
  uint64_t features() const override;
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override;

 private:
  struct Config;
  class Share;

  Config MakeConfig() const;
  void SetWriteBack(uint64_t features);
  Share& ShareOf(IoThread& io_thread);
  BlkQueue::Disk DiskOn(IoThread& io_thread);

  void Activated(uint64_t features) override;
  void ResetBegins() override;
  absl::Status Prepare(IoThread& io_thread) override;
  std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override;
  std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override;

  DeviceReports* const reports_;
  DiskThrottle unlimited_;
  DiskThrottle& throttle_;
  const ErrorAction rerror_;
  const ErrorAction werror_;
  BlkView view_;
  std::atomic<bool> begins_write_back_;  // as the disk has it; no other data hangs on it
  uint8_t writeback_field_;              // of the configuration
  std::atomic<bool> write_back_{true};   // what it and the features make of writes
  Mutex mutex_;
  BlockDevice* disk_ ABSL_GUARDED_BY(mutex_);
  // One for each I/O thread that has had a queue.
  std::vector<std::unique_ptr<Share>> shares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
