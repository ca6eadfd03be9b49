// Everything a machine can be configured with. MachineConfig, at the end, holds all the others;
// each is a plain struct whose defaults are those of `ringside run`. The ranges of numbers, sizes
// and times are those of its options too (docs/options.md); Machine::Create checks them. Every
// member has an initialiser, so that -Wmissing-field-initializers is silent about those that a
// program does not name.
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ringside/export.h"
#include "ringside/log.h"

namespace ringside {

// I/O threads: the threads that serve the queues of disks and other devices.

// How long an I/O thread polls its rings before it sleeps.
enum class PollKind {
  kNever,       // sleeps at once
  kAlways,      // never sleeps
  kFixed,       // polls for `max_ns`
  kGrowShrink,  // polls for as long as has paid lately, up to `max_ns`
  kWeighted,    // polls for as long as the slowest busy source has needed lately, up to `max_ns`
  kCost,        // polls, dozes or sleeps, whichever is cheapest
};

struct PollConfig {
  PollKind kind = PollKind::kNever;
  // Of kFixed, kGrowShrink and kWeighted.
  int64_t max_ns = 32'000;
  // Of kGrowShrink and kWeighted: factors by which the limit changes. A shrink of 0 goes back to
  // nothing: one late wait then loses all that was learned, which is why QEMU 11.1 left it for 2.
  uint32_t grow = 2;
  uint32_t shrink = 2;
  // Of kWeighted: a new wait counts for 1 / 2^weight.
  uint32_t weight = 3;
  // Of kCost: what a nanosecond of CPU time is worth, in nanoseconds of latency.
  double price = 1.0;
  // Of kCost: the share of a CPU that polling may take, whether it finds anything or not. 1: all of
  // it.
  double cpu_max = 1.0;

  bool operator==(const PollConfig&) const = default;
};

// When in a turn of an I/O thread results are shown to the guest, and its interrupt is raised.
enum class Signalling {
  kEarly,    // completions before new work is taken, so that the guest goes on meanwhile
  kBatched,  // once new work is under way, together with what it gave already
  // Shown as early. An interrupt is held while the guest is busy with what it has, if it gets more
  // done that way. It waits for 5 ms at most (docs/signalling.md), and only on a thread that polls.
  kCost,
};

// As it is, it neither polls nor holds: who gives IoThreadConfig a tuning of its own names both.
struct IoThreadTuning {
  PollConfig poll = {};
  Signalling signalling = Signalling::kEarly;
  bool trace_waits = false;  // records how long the newest waits were

  bool operator==(const IoThreadTuning&) const = default;
};

struct IoThreadConfig {
  // What it sleeps in. kAuto: an io_uring, or epoll where that cannot be had, of which the log
  // tells.
  enum class Waiter { kAuto, kUring, kEpoll };

  std::string id = {};  // as DiskConfig::id; empty: the first free of "io0", "io1", ...
  // Polls before it sleeps, and holds interrupts, where that pays; idle, it sleeps.
  IoThreadTuning tuning = {.poll = {.kind = PollKind::kCost}, .signalling = Signalling::kCost};
  Waiter waiter = Waiter::kAuto;
  std::vector<int> cpus = {};  // of the host, where it may run; empty: anywhere

  bool operator==(const IoThreadConfig&) const = default;
};

// Disks: each names its backend, that is, where its bytes are.

// With QEMU's meanings: whether the host's page cache is in use, and what a write promises.
enum class CacheMode {
  kNone,          // O_DIRECT, write-back
  kWriteback,     // page cache, write-back
  kWritethrough,  // page cache, every write durable
  kDirectsync,    // O_DIRECT, every write durable
  kUnsafe,        // page cache, and flushes are not passed on
};

enum class Engine {
  kAuto,     // io_uring, else native with O_DIRECT, else threads
  kIoUring,  // the I/O thread's ring
  kNative,   // Linux AIO
  kThreads,  // worker threads of the device
};

// A file or a block device of the host, as it is: no image format is ever guessed.
struct FileConfig {
  std::string path = {};
  bool read_only = false;
  std::optional<CacheMode> cache = {};  // unset: none where the file takes O_DIRECT, else writeback
  Engine aio = Engine::kAuto;
  // Whether the I/O thread itself reads and writes what cannot block it. Else all goes to the
  // engine.
  bool inline_io = true;
};

// No storage: every request succeeds, reads leave their buffers as they were, and what was written
// is nowhere.
struct NullConfig {
  uint64_t size = 0;  // bytes, a multiple of 512
  // From a request's submission to its completion. 0: in the turn that submitted it.
  int64_t latency_ns = 0;
};

// A namespace of an NVMe controller that Ringside's own driver drives.
struct NvmeConfig {
  // One of these: the controller's PCI address, "0000:00:04.0", or the path of the socket where a
  // vfio-user server has it.
  std::string address = {};
  std::string socket = {};
  uint32_t namespace_id = 1;
  bool read_only = false;
  // A command without an answer for so long is aborted; unset: 30 s. A controller has one: disks on
  // its namespaces agree, or leave it to the others.
  std::optional<absl::Duration> timeout = {};
};

// A namespace of an NVMe controller that stays with the kernel's driver.
struct NvmePassthroughConfig {
  std::string path = {};  // "/dev/ng0n1"
  bool read_only = false;
};

struct OverlayConfig;
class BlockDevice;
struct BackendCalls;
struct BackendDescription;
struct BlockContext;

// The configuration of any backend, as a value: BlockBackend disk = FileConfig{.path = "disk.img"};
//
// Threads: one.
class RINGSIDE_EXPORT BlockBackend {
 public:
  // A configuration is a backend. NOLINTBEGIN(google-explicit-constructor)
  BlockBackend(FileConfig config);
  BlockBackend(NullConfig config);
  BlockBackend(NvmeConfig config);
  BlockBackend(NvmePassthroughConfig config);
  BlockBackend(OverlayConfig config);
  // One of Ringside's own tree, and a filter there: see block/block_backend.h.
  template <typename Config>
    requires(!std::same_as<Config, BlockBackend> &&
             requires(const Config& config, const BlockContext& context) { config.Open(context); })
  BlockBackend(Config config);
  // NOLINTEND(google-explicit-constructor)

  // Null if it is another.
  template <typename Config>
  Config* As() {
    return std::any_cast<Config>(&config_);
  }
  template <typename Config>
  const Config* As() const {
    return std::any_cast<Config>(&config_);
  }

  // For code of Ringside's tree, where block/block_backend.h has the types; not promised.
  RINGSIDE_HIDDEN BackendDescription Describe() const;
  RINGSIDE_HIDDEN absl::Status Announce(const std::string& disk, const BlockContext& context) const;
  RINGSIDE_HIDDEN absl::StatusOr<std::unique_ptr<BlockDevice>> Open(
      const BlockContext& context) const;

 private:
  std::any config_;
  const BackendCalls* calls_;
};

// What a disk, or a group of disks, may do per second, under the names that QEMU gives its limits.
// A request that goes beyond waits in the guest's ring until the moment at which it fits. No burst
// is had that was not asked for: at the limit, requests are spaced evenly.
struct ThrottleLimit {
  uint64_t average = 0;     // per second; 0: any
  uint64_t max = 0;         // per second in a burst, more than the average; 0: there are none
  uint32_t max_length = 0;  // for so many seconds one that was idle for long may burst; 0: one

  bool operator==(const ThrottleLimit&) const = default;
};

struct ThrottleLimits {
  // Requests: reads are reads, all others writes, flushes and discards too.
  ThrottleLimit iops_total = {};
  ThrottleLimit iops_read = {};
  ThrottleLimit iops_write = {};
  // Bytes: those of reads, and those of writes and zeroes.
  ThrottleLimit bps_total = {};
  ThrottleLimit bps_read = {};
  ThrottleLimit bps_write = {};
  // Bytes: a request of twice as many counts as two, and so on; 0: each counts as one.
  uint64_t iops_size = 0;

  bool operator==(const ThrottleLimits&) const = default;
};

// Limits that several disks have together. Those that wait have their turns one after the other, by
// queue.
struct ThrottleGroupConfig {
  std::string id = {};  // as DiskConfig::id; has to be given; no other group's
  ThrottleLimits limits = {};
};

// One I/O thread's share of a disk's queues. Either all shares of a disk name their queues, or none
// does and the queues go round.
struct QueueShare {
  std::string io_thread = {};
  std::vector<uint16_t> queues = {};
};

// What becomes of a disk's request that fails, with QEMU's names.
enum class ErrorAction {
  kReport,  // the guest is told
  kIgnore,  // the guest is told that it succeeded
  // It is kept without an answer, and the machine pauses; Machine::Resume tries it again.
  kStop,
  kEnospc,  // as kStop where the storage has no space left, else as kReport
};

// A disk's writes and flushes as they come and end, in a file for tools/powercut (docs/faults.md).
struct RecordOptions {
  std::string path = {};  // made, or an older record replaced; empty: nothing is recorded
  // Bytes of the file, 4096 at least. Then the record ends, and the disk goes on.
  uint64_t limit = uint64_t{4} << 30;
  // Of a disk with faults: what gets past them, instead of what the guest asked for. Of an overlay:
  // what goes to its file.
  bool below_faults = false;
};

// A private file over a base that is only read, and that any number of overlays may share. What is
// written goes to the file, and so does what of its block of 4 KiB was not; all else is read from
// the base (docs/overlays.md).
struct OverlayConfig {
  // A FileConfig with `read_only`, or another overlay with it.
  BlockBackend base;
  std::string path = {};   // made if it is not there
  bool in_memory = false;  // instead of a path: what is written is gone with the machine
  bool read_only = false;
  // Of a new overlay, a multiple of 512; 0: the base's.
  uint64_t size = 0;
  // Bytes of blocks that it may hold; a write beyond fails as on a full disk. 0: any.
  uint64_t limit = 0;
  // Of its file, as of a FileConfig.
  std::optional<CacheMode> cache = {};
  Engine aio = Engine::kAuto;
  bool inline_io = true;
  RecordOptions record = {};  // of what goes to its file; a path is enough for that
};

struct DiskConfig {
  BlockBackend backend;  // where the bytes are: a FileConfig, a NullConfig, ...
  // For Machine::MoveQueue, statistics and messages: letters, digits, '.', '-' and '_', and no
  // other device's.
  std::string id = {};         // empty: "disk0", "disk1", ... by its place
  std::string serial = {};     // what the guest sees, 20 bytes; empty: the id's first 20
  uint16_t queues = 0;         // 1 to 16; 0: as many as vCPUs, at most 16
  bool trace_latency = false;  // for Machine::Latencies
  ThrottleLimits throttle = {};
  std::string throttle_group = {};  // whose limits it shares, beside its own; empty: none's
  // Of reads, and of writes, flushes, discards and zeroes. A discard that the storage cannot do at
  // all is answered so, whatever is set here. QEMU's default for writes is kEnospc; a machine that
  // nobody can resume is better off with the error.
  ErrorAction rerror = ErrorAction::kReport;
  ErrorAction werror = ErrorAction::kReport;
  // Empty: one thread has all queues, since it batches and polls a disk best as a whole; disks take
  // the threads in turn.
  std::vector<QueueShare> shares = {};
  // For tests: the path of a script that says which requests fail, and how (docs/faults.md); empty:
  // none do on purpose.
  std::string fault_script = {};
  RecordOptions record = {};
};

// A network of the guest (virtio-net), and what it is connected to.
struct NetConfig {
  // One of these three. The name of a tap of the host; one that is not there is made, and goes with
  // the machine.
  std::string tap = {};
  // Descriptors of a tap's queues, opened with IFF_NO_PI and IFF_VNET_HDR: one for each queue pair.
  // They stay the embedder's, and are not to be read or written by others meanwhile.
  std::vector<int> fds = {};
  // A process that speaks passt's protocol, and gives the guest a network without rights on the
  // host: behind the socket at `socket`, or at the other end of `stream_fd`, which stays the
  // embedder's. `ringside run` starts passt where neither is given.
  bool user = false;
  std::string socket = {};
  int stream_fd = -1;
  // For the passt that the command starts: ports of the host that lead to the guest, as passt's
  // options --tcp-ports and --udp-ports have them; empty: none.
  std::string tcp_ports = {};
  std::string udp_ports = {};

  std::string id = {};  // as DiskConfig::id; empty: "net0", "net1", ... by its place
  // "02:00:00:12:34:56"; empty: one made of the id, the tap's name and the host's machine-id.
  std::string mac = {};
  uint16_t queues = 0;  // pairs, 1 to 8; 0: one, or as many as there are descriptors
  uint16_t mtu = 0;     // 68 to 65535, that the guest is told; 0: the tap's
  // Of a tap: the host's kernel (vhost-net) carries the frames, which I/O threads do otherwise.
  // There are no limits and no latencies then, and frames are counted for the tap as a whole.
  bool vhost = false;
  bool trace_latency = false;  // for Machine::Latencies
  // Of frames: a read is one that comes in to the guest, a write is one that goes out.
  ThrottleLimits throttle = {};
  // As DiskConfig::shares; the numbers are those of pairs. Both queues of a pair have one thread.
  std::vector<QueueShare> shares = {};
};

// Streams between the guest and programs of the host (virtio-vsock), by Unix sockets of the host: a
// program connects to `path` and writes "CONNECT PORT\n", and what the guest connects to on the
// host's port P is a program that listens at "<path>_P" (docs/vsock.md).
struct VsockConfig {
  uint64_t cid = 0;       // the guest's context id: 3 to 4294967294
  std::string path = {};  // of a socket that is made, and goes with the machine

  std::string id = {};         // as DiskConfig::id; empty: "vsock0"
  std::string io_thread = {};  // by name, who serves its queues; empty: the first
  uint32_t max_connections = 1024;
  // Whether MachineConfig::events are told when the guest's agent answers, and when no longer. That
  // takes one connection, and until the agent answers for the first time up to one attempt a
  // second.
  bool watch_agent = false;
  bool trace_latency = false;  // for Machine::Latencies
};

// COM1. The descriptors stay the embedder's, and open for as long as the machine exists.
struct ConsoleConfig {
  int input_fd = -1;             // -1: the guest never receives anything
  int output_fd = -1;            // -1: what the guest sends is dropped
  std::string output_name = {};  // what the log calls it; such as a path
  // A regular file is made no longer than this: a guest may never stop talking. Those who write to
  // it at the same moment may each exceed it by what the buffer holds.
  uint64_t output_limit = std::numeric_limits<uint64_t>::max();
  // Typed by the user to leave: it is not sent on, but calls `detached`, on a thread of the
  // machine.
  std::optional<uint8_t> detach_key = {};
  std::function<void()> detached = {};  // unset: Machine::Stop
};

class Device;
class EventSink;

// A virtio device of the embedder's own (ringside/device.h). Its queues are moved, counted and
// traced as those of disks are.
struct DeviceConfig {
  std::string id = {};  // as DiskConfig::id; has to be given
  // By name, who serves its queues: the first thread queue 0, and so on, and the first ones again
  // where there are fewer threads than queues. Empty: the machine's first I/O thread has all.
  std::vector<std::string> io_threads = {};
  bool trace_latency = false;  // for Machine::Latencies
  // Called by Machine::Create, and whenever devices are made anew from a saved state, on the thread
  // that asks for it: there the former device still lives, and the new one goes unused if the state
  // is refused. So it takes nothing that only one can have, and makes a device of the same kind
  // with as many queues each time. It must not call the machine.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> create = {};
};

// A PCI device of the host that is passed through to the guest, by the kernel's VFIO.
struct AssignedConfig {
  std::string address = {};  // such as "0000:00:05.0"
  std::string id = {};       // as DiskConfig::id; empty: "vfio0", "vfio1", ... by its place
};

// How a kernel is entered. kAuto takes PVH where the file has a note for it (the note says "enter
// me here", while an ELF file's plain entry may expect anything), else the Linux 64-bit protocol.
enum class BootProtocol { kAuto, kLinux, kPvh };

// Whether the guest has an interval timer (Intel 8254). It costs a kernel thread, and most of the
// time that the end of a machine takes; a guest needs it that knows neither kvmclock nor the local
// APIC's TSC deadline.
enum class Pit {
  kAuto,  // only where KVM has no TSC deadline timer for guests: old kernels on old processors
  kOn,
  kOff,
};

// The processor that the guest sees. All but kHost are levels of the x86-64 psABI: the guest has
// the level's features and what every host gives, so that once saved it goes on on any host of the
// level and vendor (docs/snapshots.md). Create refuses a host that lacks one of them.
enum class CpuBaseline {
  kHost,  // all that this host's KVM offers
  kX86_64V2,
  kX86_64V3,
  kX86_64V4,
};

// What the guest's clocks did while it was saved.
enum class RestoreClock {
  kStood,  // nothing: it goes on at the moment it was saved, and its time of day is late
  kRan,    // went on
};

// Where a restored machine has its memory.
enum class RestoreMemory {
  kAuto,    // kCopied where a disk reaches memory by DMA, else kMapped
  kMapped,  // in the snapshot's file, of which it has what it changes for itself
  kCopied,  // in its own, into which all of the file is read, and verified, first
};

// What pages of the host the memory is made of. Huge ones have the guest wait for fewer page
// faults, and the processor look up fewer addresses.
enum class HugePages {
  kOff,  // of 4 KiB, as far as the kernel does not decide for itself
  // Of 2 MiB where the kernel finds some when memory is touched: it is asked to (MADV_HUGEPAGE).
  // That has an effect where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or more;
  // the log tells of a host where it has none.
  kTransparent,
  // All of it of 2 MiB, out of those that the host has set aside (vm.nr_hugepages). They are
  // reserved by Machine::Create, which fails where there are too few.
  k2M,
};

class IoPool;
class MachineTemplate;

struct MachineConfig {
  // The directory of a snapshot (Machine::Save): the machine goes on from there, and boots nothing.
  // It has the snapshot's vCPUs and memory; all else is as this configuration says, and has to be
  // such that the guest finds the devices it had, whatever is behind them. The snapshot's files
  // stay as they are for as long as the machine lives, unless its memory is copied. Empty: it
  // boots.
  std::string restore = {};
  // The same, from a template (ringside/machine_template.h) instead of a directory.
  std::shared_ptr<const MachineTemplate> from = {};
  RestoreMemory restore_memory = RestoreMemory::kAuto;
  // The path of a Unix socket, on which a handler of page faults listens that speaks Firecracker's
  // protocol: the machine that is restored from a directory has its memory from there, page by page
  // as it is touched, and the directory's file "memory" is not looked for. Create connects, and
  // waits 30 seconds at most for the pages that it needs itself. The handler serves until the
  // machine has ended; where its process ends before, so does that (EndKind::kFailure). It is
  // handed a userfaultfd, by which it can change or hold up any memory of the process: it is
  // trusted as much as the process is. Empty: there is none.
  std::string restore_handler = {};
  RestoreClock restore_clock = RestoreClock::kStood;
  // Whether memory that is mapped is prepared before the guest runs, as far as the snapshot has the
  // pages that one before it used (Machine::RecordWorkingSet).
  bool restore_working_set = true;
  std::string kernel = {};  // path of a bzImage or an ELF file
  std::string initrd = {};  // path; empty: none
  std::string command_line = "console=ttyS0 panic=-1";
  BootProtocol protocol = BootProtocol::kAuto;
  uint32_t cpus = 1;
  CpuBaseline cpu_baseline = CpuBaseline::kHost;
  uint64_t memory = 512 << 20;  // bytes, whole pages of 4 KiB
  // The host's NUMA nodes that the memory is taken from, page by page in turns if there are
  // several. A single node that is full is not helped out by others: the guest meets a host without
  // memory. Empty: each page comes from the node of whichever thread touches it first.
  std::vector<int> memory_nodes = {};
  // All but kOff is for memory of the machine's own: one that is restored has to have it copied
  // (RestoreMemory::kCopied). With k2M memory is a multiple of 2 MiB. With memory_nodes it is taken
  // at once, zeroed, as a reservation is of no node. A save reads all of it, and takes what the
  // guest has not touched. Machine::MakeTemplate has the machine reserve as many pages again for
  // what it will write, and so does each machine that is made of the template, whatever it has
  // here; with memory_nodes they are copied at once.
  HugePages huge_pages = HugePages::kOff;
  ConsoleConfig console = {};
  std::vector<DiskConfig> disks = {};
  std::vector<NetConfig> networks = {};
  std::optional<VsockConfig> vsock = {};
  std::vector<ThrottleGroupConfig> throttle_groups = {};
  // Of all devices. Empty: one, if there are disks, networks, a vsock or own devices.
  std::vector<IoThreadConfig> io_threads = {};
  // Instead of those: threads that other machines have, too (ringside/io_pool.h), by their names
  // there. Null: the machine has its own.
  std::shared_ptr<IoPool> io_pool = {};
  // By vCPU, the host's CPUs its thread may run on; empty, or not there: any.
  std::vector<std::vector<int>> vcpu_cpus = {};
  // How long KVM polls for a reason to go on before it lets a vCPU sleep; unset: as the kernel is
  // set.
  std::optional<absl::Duration> halt_poll = {};
  Pit pit = Pit::kAuto;
  std::vector<DeviceConfig> devices = {};
  // On the guest's bus behind `devices`. They are reset before the guest gets them and after its
  // end, and all of its memory is pinned.
  std::vector<AssignedConfig> assigned = {};
  LogSink* log = nullptr;       // outlives the machine; null: nobody listens
  EventSink* events = nullptr;  // ringside/event.h; outlives the machine; null: nobody listens
  std::string kvm_path = "/dev/kvm";
};

}  // namespace ringside
