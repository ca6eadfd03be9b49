// What a machine has done, as numbers: for people (`ringside run --stats`), benchmarks and tests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "block/block_counters.h"
#include "devices/latency_trace.h"
#include "kvm/vcpu_statistics.h"
#include "poll/io_thread_statistics.h"

namespace ringside {

struct QueueStatistics {
  std::string io_thread;  // that serves it now
  uint64_t reads = 0, writes = 0, flushes = 0, discards = 0, others = 0;
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t errors = 0;
  uint64_t kicks = 0;                    // of the guest's driver
  uint64_t kicks_on = 0, kicks_off = 0;  // how often it was asked to kick, and not to
  uint64_t batches = 0;                  // publications of completed requests
  uint64_t interrupts = 0;               // of those, the ones the driver wanted to hear of

  uint64_t requests() const { return reads + writes + flushes + discards + others; }
  // Requests that cost the guest no kick of their own, and batches that cost it no interrupt.
  uint64_t kicks_suppressed() const { return requests() > kicks ? requests() - kicks : 0; }
  uint64_t interrupts_suppressed() const { return batches - interrupts; }
};

struct DiskStatistics {
  std::string id;    // "disk0", or DiskConfig::id
  std::string path;  // or "null", "nvme://0000:00:04.0/1", "nvme+user:///run/ctrl.sock/1"
  std::string cache;
  std::string engine;  // empty: the guest never used the disk
  std::vector<BlockCounter> counters;
  std::vector<QueueStatistics> queues;
};

// When the newest requests of a queue passed which point (devices/latency_trace.h).
struct QueueLatencies {
  std::string disk;  // its id
  std::string path;
  uint16_t queue = 0;
  uint64_t overwritten = 0;            // older requests whose records were not kept
  std::vector<LatencyRecord> records;  // in the order in which they were answered
};

// A PCI device that the guest has whole: what Ringside sees of it.
struct AssignedStatistics {
  std::string id;  // "vfio0", or AssignedConfig::id
  std::string address;
  uint32_t vectors = 0;         // enabled at the same time, at most
  uint64_t register_exits = 0;  // accesses to its registers that left the guest
};

// What the guest has sent to its console, in bytes.
struct ConsoleStatistics {
  uint64_t written = 0;
  uint64_t waiting = 0;  // for its reader
  uint64_t dropped = 0;  // beyond the limit, sent while the port was busy, or refused by the host
};

// A virtio device that is no disk.
struct DeviceStatistics {
  std::string name;                     // "rng", or what its embedder calls it
  std::vector<QueueStatistics> queues;  // empty: what it counts is between it and its embedder
};

struct MachineStatistics {
  ConsoleStatistics console;
  std::vector<DiskStatistics> disks;
  std::vector<DeviceStatistics> devices;
  std::vector<AssignedStatistics> assigned;
  std::vector<IoThreadStatistics> io_threads;
  std::vector<VcpuStatistics> vcpus;
};

}  // namespace ringside
