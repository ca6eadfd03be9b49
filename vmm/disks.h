// The disks of a machine: for each a block device, a virtio-blk device and a PCI function, and the
// I/O thread that serves them.
//
// Threads: as Machine; the I/O thread is its own.
// Ownership: what Plug is given outlives it. Stop comes after the vCPUs have stopped and before the
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "block/file_device.h"
#include "block/null_device.h"
#include "devices/guest_memory.h"
#include "devices/interrupt.h"
#include "devices/pci_host.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_pci.h"
#include "poll/io_thread.h"
#include "vmm/statistics.h"

namespace ringside {

struct DiskConfig {
  std::variant<FileConfig, NullConfig> backend;  // where the bytes are

  std::string serial;          // what the guest sees; empty: "disk0", "disk1", ...
  uint16_t queues = 0;         // 0: as many as vCPUs, at most VirtioBlk::kMaxQueues
  bool trace_latency = false;  // for Machine::Latencies
};

// The thread that serves the disks.
struct IoThreadConfig {
  IoThreadTuning tuning;
};

class Disks {
 public:
  // Opens and locks the files; starts an I/O thread if there is any.
  static absl::StatusOr<std::unique_ptr<Disks>> Open(std::span<const DiskConfig> configs,
                                                     const IoThreadConfig& io_thread, Logger log);
  // Gives the guest its devices, in order. Once.
  absl::Status Plug(uint32_t cpus, const GuestMemory& memory, PciPlatform& platform,
                    PciHost& pci_host);

  // Waits until no request is in flight any more. However long the host's storage takes: the kernel
  // may still write into guest memory.
  void Stop();
  // Adds what is known here. Waits for the I/O thread's next turn.
  void Collect(MachineStatistics& statistics);
  // Of the disks that were to be traced, by queue. After Stop.
  std::vector<QueueLatencies> Latencies() const;

 private:
  struct Disk {
    DiskConfig config;
    std::string name;
    std::unique_ptr<BlockDevice> device;
    const FileDevice* file = nullptr;  // `device`, if it is one
    std::unique_ptr<VirtioBlk> blk;
    std::unique_ptr<VirtioPci> pci;
    std::vector<uint64_t> kicks;  // by queue: what was taken out of the eventfds so far
  };

  explicit Disks(Logger log) : log_(log) {}
  absl::Status OpenDevice(Disk& disk) const;
  void TakeKicks();
  absl::Status StartIoThread(std::span<const DiskConfig> configs, const IoThreadConfig& io_thread);

  const Logger log_;
  std::unique_ptr<IoThread> io_thread_;
  std::vector<Disk> disks_;
};

}  // namespace ringside
