// What a machine has done, as numbers: for people (`ringside run --stats`), benchmarks and tests.
// All of it is a copy, made when it is asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ringside/config.h"
#include "ringside/explanation.h"

namespace ringside {

// As QueueStatistics counts requests.
enum class RequestKind : uint8_t { kRead, kWrite, kFlush, kDiscard, kOther };
inline constexpr size_t kRequestKinds = 5;

// Of LatencyHistogram: each bucket ends with its bound, the last has none. They never change, so
// that histograms of several machines and versions can be added up.
inline constexpr std::array<uint64_t, 22> kLatencyBoundsNs = {
    1'000,         2'000,         5'000,          //
    10'000,        20'000,        50'000,         //
    100'000,       200'000,       500'000,        //
    1'000'000,     2'000'000,     5'000'000,      //
    10'000'000,    20'000'000,    50'000'000,     //
    100'000'000,   200'000'000,   500'000'000,    //
    1'000'000'000, 2'000'000'000, 5'000'000'000,  //
    10'000'000'000};
inline constexpr size_t kLatencyBuckets = kLatencyBoundsNs.size() + 1;

// How long requests of a kind took, from LatencyPoint::kSeen to kPublished.
struct LatencyHistogram {
  RequestKind kind = RequestKind::kOther;
  std::array<uint64_t, kLatencyBuckets> counts{};  // by bucket, each without those below it
  uint64_t sum_ns = 0;

  uint64_t count() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }
};

// The interrupts of a queue. What is held is raised in the end or dropped, so at any moment
// `dropped` and those raised after a hold are `held`, but for one that is held right now.
struct SignalStatistics {
  std::array<uint64_t, kSignalReasons> raised{};  // by SignalReason
  uint64_t held = 0;     // those that were wanted and waited until the guest had use for them
  uint64_t held_ns = 0;  // for how long, in all, those that were dropped included
  uint64_t dropped = 0;  // of those held, the ones that the guest wanted no more
};

// A queue of a device, over the device's life, resets and moves included. A read is what writes
// into the guest's memory, for whatever device.
struct QueueStatistics {
  std::string io_thread;  // that serves it now
  uint64_t reads = 0, writes = 0, flushes = 0, discards = 0, others = 0;
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t errors = 0;                   // requests that failed and were answered
  uint64_t kept = 0;                     // that failed and wait for Machine::Resume, at the moment
  uint64_t kicks = 0;                    // of the guest's driver
  uint64_t kicks_on = 0, kicks_off = 0;  // how often it was asked to kick, and not to
  uint64_t batches = 0;                  // publications of completed requests
  uint64_t interrupts = 0;               // that were raised; one may be for several batches
  SignalStatistics signals;              // why these were raised, and when
  uint64_t throttled = 0;                // requests that had to wait until they fit their limits
  uint64_t throttled_ns = 0;             // for how long, in all
  // Of the requests that were traced (Machine::SetTrace), by kind; of a kind that had none there is
  // none.
  std::vector<LatencyHistogram> latencies;

  uint64_t requests() const { return reads + writes + flushes + discards + others; }
  // Requests that cost the guest no kick of their own, and batches that cost it no interrupt.
  uint64_t kicks_suppressed() const { return requests() > kicks ? requests() - kicks : 0; }
  uint64_t interrupts_suppressed() const { return batches - interrupts; }
};

// What a backend counts, by a name of its own.
struct BlockCounter {
  std::string name;
  uint64_t value = 0;
};

struct DiskStatistics {
  std::string id;     // "disk0", or DiskConfig::id
  std::string path;   // or "null", "nvme://0000:00:04.0/1", "nvme+user:///run/ctrl.sock/1"
  uint64_t size = 0;  // bytes, as the guest is told
  std::string cache;
  std::string engine;  // empty: the guest never used the disk
  std::vector<BlockCounter> counters;
  ThrottleLimits throttle;     // as set now
  std::string throttle_group;  // empty: none
  std::vector<QueueStatistics> queues;
};

struct NetworkStatistics {
  std::string id;    // "net0", or NetConfig::id
  std::string path;  // the tap's name, or the socket's path
  std::string mac;   // as it was at first
  bool link_up = false;
  ThrottleLimits throttle;  // as set now
  // Receive and transmit queue of each pair, then that of commands. A read is a frame that came in,
  // a write is one that went out, an error is one that was dropped. With NetConfig::vhost the first
  // pair's have the frames of all.
  std::vector<QueueStatistics> queues;
};

struct VsockStatistics {
  std::string id;             // "vsock0", or VsockConfig::id
  std::string path;           // of the host's socket
  uint64_t cid = 0;           // the guest's
  uint64_t connections = 0;   // that there are now, and that are being made
  uint64_t connected = 0;     // that there have been
  uint64_t refused = 0;       // by either side, or as there were too many
  uint64_t credit_waits = 0;  // how often data had to wait until the guest had room
  // Receive, transmit and event queue. A read is a packet that came in to the guest, a write is one
  // that went out, an error is one that broke the rules.
  std::vector<QueueStatistics> queues;
};

// A virtio device that is neither disk, network nor vsock.
struct DeviceStatistics {
  std::string id;  // "rng", or DeviceConfig::id
  std::vector<QueueStatistics> queues;
};

// A PCI device that is passed through: what Ringside sees of it.
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

struct IoThreadStatistics {
  std::string id;
  std::string waiter;  // "io_uring" or "epoll"
  // As set now.
  PollConfig poll;
  std::string signal;     // "early", "batched" or "cost"
  std::vector<int> cpus;  // of the host, where it is kept; empty: anywhere

  uint64_t turns = 0;
  uint64_t spins = 0;  // waits that began by polling the rings
  uint64_t spin_hits = 0;
  uint64_t spin_used_ns = 0;
  uint64_t spin_wasted_ns = 0;
  uint64_t spin_limit_ns = 0;  // of the last wait: what the policy makes of its settings
  uint64_t dozes = 0;          // sleeps by a timer
  uint64_t doze_ends = 0;      // of those, the ones that the timer ended
  uint64_t preempted = 0;      // polls given up since another thread waited for the CPU
  // What going to sleep costs: the latency of waking by an interrupt or by another thread, and CPU
  // time. 0: not measured, as it never polls.
  uint64_t wake_ns = 0;
  uint64_t kick_ns = 0;
  uint64_t sleep_cpu_ns = 0;
  uint64_t sleeps = 0;
  uint64_t wake_ups = 0;
  uint64_t parked = 0;  // sources that fell silent, and are watched by their eventfd alone
  uint64_t unparked = 0;
  uint64_t io_uring_enters = 0;
};

struct ExitCount {
  const char* reason;
  uint64_t count;
};

struct KernelCount {
  const char* name;  // KVM's own
  uint64_t count;
};

// How often a vCPU has left the guest, and why.
struct VcpuStatistics {
  std::vector<ExitCount> exits;           // returns of KVM_RUN, by reason
  std::vector<KernelCount> kernel_exits;  // what KVM counts; empty: this host's does not
};

struct MachineStatistics {
  ConsoleStatistics console;
  std::vector<DiskStatistics> disks;
  std::vector<NetworkStatistics> networks;
  std::vector<VsockStatistics> vsocks;               // one at most
  std::vector<ThrottleGroupConfig> throttle_groups;  // as set now
  std::vector<DeviceStatistics> devices;
  std::vector<AssignedStatistics> assigned;
  std::vector<IoThreadStatistics> io_threads;
  std::vector<VcpuStatistics> vcpus;
};

// What a request passes on its way, in this order:
//
//   seen       just before the poll of the available index that showed the request
//   taken      its descriptor chain has been parsed
//   submitted  it is about to be handed over to whoever carries it out
//   completed  its result is known
//   published  the used index that shows its answer has been stored
//   interrupt  the interrupt of its batch has been signalled; never, if the driver wanted none
enum class LatencyPoint { kSeen, kTaken, kSubmitted, kCompleted, kPublished, kInterrupt };
inline constexpr size_t kLatencyPoints = 6;

struct LatencyRecord {
  RequestKind kind = RequestKind::kOther;
  uint64_t bytes = 0;                           // transferred
  std::array<int64_t, kLatencyPoints> at_ns{};  // CLOCK_MONOTONIC, by point; interrupt 0: none

  int64_t at(LatencyPoint point) const { return at_ns[static_cast<size_t>(point)]; }
};

// When the newest requests of a queue passed which point.
struct QueueLatencies {
  std::string device;  // DiskConfig::id, or DeviceConfig::id
  std::string path;
  uint16_t queue = 0;
  uint64_t overwritten = 0;            // older requests whose records were not kept
  std::vector<LatencyRecord> records;  // in the order in which they were answered
};

}  // namespace ringside
