// The disks of a machine as the host has them, and the virtio-blk devices that its guest gets for
// them.
//
// Threads: as Machine. Ownership: it outlives the devices that it plugs in.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/sync.h"
// What DiskConfig::backend can be, or anything like them.
#include "block/null_device.h"
#include "block/throttle.h"
#include "devices/device_context.h"
#include "devices/virtio_blk.h"
#include "file/file_device.h"
#include "nvme/nvme_device.h"
#include "nvme/nvme_passthrough_device.h"
#include "ringside/statistics.h"
#include "vmm/device_queues.h"
#include "vmm/disk_reports.h"
#include "vmm/guest_devices.h"
#include "vmm/host_state.h"
#include "vmm/queue_mapping.h"

namespace ringside {

class Disks {
 public:
  // Opens and locks the files, resets and sets up the NVMe controllers, and finds the I/O threads
  // of their queues.
  static absl::StatusOr<std::unique_ptr<Disks>> Open(const MachineConfig& config,
                                                     const IoThreads& io_threads, Logger log);
  // FailedPrecondition if one may have no engine but io_uring, and an I/O thread of it has none.
  absl::Status CheckWaiters(const IoThreads& io_threads) const;
  // Lets them reach guest memory. Once, before Plug.
  absl::Status MapMemory(const GuestMemory& memory);
  // FailedPrecondition: one reaches memory by DMA, and so needs it shared.
  absl::Status CheckTakeAnyMemory() const;
  // Gives the guest a device for each, in order, with the queues where the configuration wants
  // them. The I/O threads run; in the place of one that has been removed comes another.
  absl::Status Plug(const DeviceContext& context, EventQueue& events, Pauser& pauser,
                    GuestDevices& devices);
  // The machine is over: see BlockDevice::EndSoon.
  void EndSoon();
  // See Machine. Any thread.
  absl::Status SetThrottle(const std::string& id, const ThrottleLimits& limits);
  absl::Status SetGroupThrottle(const std::string& id, const ThrottleLimits& limits);
  // See Machine::ResizeDisk.
  absl::StatusOr<uint64_t> Resize(const std::string& id, std::optional<uint64_t> size,
                                  DeviceQueues& queues, absl::Duration patience);
  // What a backend that is exchanged for another meets.
  struct Surroundings {
    DeviceQueues& queues;
    const GuestMemory& memory;
  };
  // See Machine::SwapDisk.
  absl::Status Swap(const std::string& id, const BlockBackend& backend, const Surroundings& around,
                    absl::Duration patience);
  // Of a machine that rests: what its guest has written is durable, and in an overlay's map, when
  // this returns. Once `is_over` says so, it waits for no more than its storage has begun.
  // FailedPrecondition: the storage has failed. DeadlineExceeded: a queue is still being moved.
  absl::Status Flush(DeviceQueues& queues, Deadline deadline, absl::FunctionRef<bool()> is_over);
  // The disks on this block device of the host, by their ids; 0: on any.
  std::vector<std::string> OnHostDevice(uint64_t device) const;
  // Of a machine that rests: what a saved one keeps.
  void Save(HostState& state) const;
  // FailedPrecondition: a disk has another content than was saved, as far as that can be told.
  absl::Status Restore(const HostState& state);
  // Adds what is known here, but for the queues' own.
  void Collect(const DeviceQueues& queues, MachineStatistics& statistics) const;

 private:
  struct Disk {
    Disk(const DiskConfig& config_of, std::string id_of, std::vector<std::string> io_threads_of,
         BackendDescription description, std::unique_ptr<BlockDevice> opened, ThrottleGroup* group)
        : config(config_of),
          id(std::move(id_of)),
          io_threads(std::move(io_threads_of)),
          throttle(std::make_unique<DiskThrottle>(group)),
          backend(std::move(description)),
          device(std::move(opened)) {
      throttle->Set(config.throttle);
    }

    const DiskConfig config;  // as it was at first
    const std::string id;
    const std::vector<std::string> io_threads;  // by queue, at first
    std::unique_ptr<DiskReports> reports;
    const std::unique_ptr<DiskThrottle> throttle;
    mutable Mutex mutex;  // not held while storage is waited for
    BackendDescription backend ABSL_GUARDED_BY(mutex);
    // The object changes under DeviceQueues::Change of the disk only.
    std::unique_ptr<BlockDevice> device ABSL_GUARDED_BY(mutex);
  };

  explicit Disks(Logger log) : log_(log) {}
  absl::Status Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                   const BlockContext& context);
  absl::StatusOr<Disk*> Find(const std::string& id);
  static absl::Status MapMemory(const BackendDescription& backend, BlockDevice& device,
                                const GuestMemory& memory);
  static absl::Status CheckTakes(const BackendDescription& backend, const GuestMemory& memory);
  absl::Status CheckContent(const HostState::Content& saved) const;
  absl::StatusOr<ThrottleGroup*> FindGroup(const std::string& id);
  absl::StatusOr<std::unique_ptr<BlockDevice>> OpenNext(const Disk& disk,
                                                        const BlockBackend& backend,
                                                        const GuestMemory& memory) const;
  // Has `next` take the place of the disk's device, and returns that in it.
  absl::Status Exchange(Disk& disk, std::unique_ptr<BlockDevice>& next,
                        BackendDescription& description, QueuedDevice& device, VirtioPci& pci,
                        Deadline deadline);

  const Logger log_;
  std::vector<std::unique_ptr<ThrottleGroup>> groups_;
  std::deque<Disk> disks_;  // which stay where they are
};

}  // namespace ringside
