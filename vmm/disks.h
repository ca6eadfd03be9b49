// The disks of a machine: for each a block device, a virtio-blk device and a PCI function.
//
// Threads: as Machine.
// Ownership: what Plug is given outlives it. Stop comes after the vCPUs have stopped and before the
// end.
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
#include "devices/interrupt.h"
#include "devices/pci_host.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_pci.h"
#include "file/file_device.h"
#include "nvme/nvme_device.h"
#include "nvme/nvme_passthrough_device.h"
#include "vmm/device_queues.h"
#include "vmm/pauser.h"
#include "vmm/queue_mapping.h"
#include "vmm/statistics.h"

namespace ringside {

struct DiskConfig {
  BlockBackend backend;        // where the bytes are: a FileConfig, a NullConfig, ...
  std::string serial;          // what the guest sees; empty: "disk0", "disk1", ...
  uint16_t queues = 0;         // 0: as many as vCPUs, at most VirtioBlk::kMaxQueues
  bool trace_latency = false;  // for Machine::Latencies
  // Empty: one thread has all queues, since it batches and polls a disk best as a whole; disks take
  // the threads in turn.
  std::vector<QueueShare> shares;
};

class Disks {
 public:
  // Opens and locks the files, resets and sets up the NVMe controllers, and finds the I/O threads
  // of their queues. `cpus`: the guest's.
  static absl::StatusOr<std::unique_ptr<Disks>> Open(std::span<const DiskConfig> configs,
                                                     const IoThreads& io_threads, uint32_t cpus,
                                                     Logger log);
  // FailedPrecondition if one may have no engine but io_uring, and an I/O thread of it has none.
  absl::Status CheckWaiters(const IoThreads& io_threads) const;
  // Gives the guest its devices, in order, and `queues` those to look after. Once; the I/O threads
  // run.
  absl::Status Plug(const DeviceContext& context, PciPlatform& platform, PciHost& pci_host,
                    DeviceQueues& queues, Pauser& pauser);

  // Begins nothing new, cancels what it can, and waits until no request is in flight any more.
  // However long the host's storage takes: the kernel may still write into guest memory. After
  // a second the log names each disk that is waited for, once.
  void Stop();
  // Adds what is known here, but for the queues' own.
  void Collect(const DeviceQueues& queues, MachineStatistics& statistics) const;

 private:
  struct Disk {
    DiskConfig config;
    std::string name;
    BackendDescription backend;
    std::unique_ptr<BlockDevice> device;
    std::unique_ptr<VirtioBlk> blk;
    std::unique_ptr<VirtioPci> pci;
    std::vector<std::string> io_threads;  // by queue, at first
  };

  explicit Disks(Logger log) : log_(log) {}
  absl::Status Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                   const BlockContext& context);
  void LogWaitingFor(const Disk& disk) const;

  const Logger log_;
  std::vector<Disk> disks_;
};

}  // namespace ringside
