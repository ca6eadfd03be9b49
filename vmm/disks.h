// The disks of a machine as the host has them, and the virtio-blk devices that its guest gets for
// them.
//
// Threads: as Machine. Ownership: it outlives the devices that it plugs in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
// What DiskConfig::backend can be, or anything like them.
#include "block/null_device.h"
#include "devices/device_context.h"
#include "devices/virtio_blk.h"
#include "file/file_device.h"
#include "nvme/nvme_device.h"
#include "nvme/nvme_passthrough_device.h"
#include "ringside/statistics.h"
#include "vmm/device_queues.h"
#include "vmm/guest_devices.h"
#include "vmm/queue_mapping.h"

namespace ringside {

// Of the disk in this place, which may not have been given one.
std::string DiskId(const DiskConfig& config, size_t index);

class Disks {
 public:
  // Opens and locks the files, resets and sets up the NVMe controllers, and finds the I/O threads
  // of their queues. `cpus`: the guest's.
  static absl::StatusOr<std::unique_ptr<Disks>> Open(std::span<const DiskConfig> configs,
                                                     const IoThreads& io_threads, uint32_t cpus,
                                                     Logger log);
  // FailedPrecondition if one may have no engine but io_uring, and an I/O thread of it has none.
  absl::Status CheckWaiters(const IoThreads& io_threads) const;
  // Lets them reach guest memory. Once, before Plug.
  absl::Status MapMemory(const GuestMemory& memory);
  // Gives the guest a device for each, in order, with the queues where the configuration wants
  // them. The I/O threads run; in the place of one that has been removed comes another.
  absl::Status Plug(const DeviceContext& context, EventQueue& events, GuestDevices& devices) const;
  // The machine is over: see BlockDevice::EndSoon.
  void EndSoon();
  // Adds what is known here, but for the queues' own.
  void Collect(const DeviceQueues& queues, MachineStatistics& statistics) const;

 private:
  struct Disk {
    DiskConfig config;
    std::string id;
    BackendDescription backend;
    std::unique_ptr<BlockDevice> device;
    std::vector<std::string> io_threads;  // by queue, at first
  };

  explicit Disks(Logger log) : log_(log) {}
  absl::Status Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                   const BlockContext& context);
  const Logger log_;
  std::vector<Disk> disks_;
};

}  // namespace ringside
