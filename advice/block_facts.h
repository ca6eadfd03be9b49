// What the kernel says of a block device, and of those that it stands on.
//
// Threads: any. All of it is a copy; what an old kernel or a simple device does not have is not
// there.
// Spec: Documentation/ABI/stable/sysfs-block, testing/sysfs-block-dm, testing/sysfs-kernel-irq.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "advice/device_mapper.h"

namespace ringside {

// One of a device's interrupts that tell of I/O.
struct DeviceInterrupt {
  int number = 0;
  std::string name;       // "nvme0q1"
  std::vector<int> cpus;  // where it arrives
};

// The PCI device that does the work.
struct PciFacts {
  std::string address;                      // "0000:00:04.0"; empty: there is none
  std::string driver;                       // "nvme"
  std::optional<int> node;                  // of the host's NUMA nodes; none: firmware does not say
  std::vector<DeviceInterrupt> interrupts;  // empty: not known
};

struct BlockFacts {
  std::string name;    // "nvme0n1p1"
  std::string disk;    // whose queue it shares: "nvme0n1"
  std::string driver;  // of the disk, "virtio_blk"; empty: not known
  bool is_read_only = false;
  uint64_t offset = 0;               // of a partition, in bytes
  std::vector<std::string> holders;  // devices that stand on it

  // Of its queue. See sysfs-block.
  std::vector<std::string> schedulers;
  std::string scheduler;  // in use
  std::optional<int64_t> nomerges;
  std::optional<int64_t> rq_affinity;
  std::optional<int64_t> nr_requests;
  std::optional<int64_t> rotational;
  std::optional<int64_t> discard_max;
  std::optional<int64_t> physical_block;
  std::string write_cache;      // as the kernel treats it: "write back" or "write through"
  std::string own_write_cache;  // as the disk itself says; SCSI and ATA only

  std::string backing_file;  // of a loop device
  std::optional<int64_t> loop_direct;

  std::string dm_name;
  std::string dm_uuid;
  std::optional<std::vector<DmTarget>> dm_targets;

  PciFacts pci;                   // of those that stand on no other block device
  std::vector<BlockFacts> below;  // that it stands on

  bool is_partition() const { return name != disk; }
  bool is_dm() const { return !dm_name.empty(); }
  const DmTarget* Target(const std::string& type) const;
};

// Who is asked for the tables of the device mapper: ReadDmTargets, in tests another.
using DmReader = std::function<std::optional<std::vector<DmTarget>>(dev_t)>;

// `root` is "/", in tests another. Nothing: the kernel has no such block device; the numbers of
// some file systems belong to none.
std::optional<BlockFacts> ReadBlockFacts(const std::filesystem::path& root, dev_t device,
                                         const DmReader& read_dm = ReadDmTargets);

// Of the PCI device to which a directory of sysfs belongs.
PciFacts ReadPciFacts(const std::filesystem::path& root, std::filesystem::path directory);

}  // namespace ringside
