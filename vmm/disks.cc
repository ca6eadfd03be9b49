#include "vmm/disks.h"

#include <algorithm>

#include "base/status.h"
#include "base/sync.h"

namespace ringside {
namespace {

// What the bus has room for, beside the host bridge and the entropy device.
constexpr size_t kMaxDisks = PciHost::kDevices - 2;
constexpr char kIoThreadName[] = "io-disk";
constexpr char kNullName[] = "null";
// Mass storage, SCSI: what guests that look at classes expect of a virtio disk.
constexpr uint32_t kClassCode = 0x010000;

absl::Status CheckSerial(const std::string& serial) {
  const bool printable =
      std::ranges::all_of(serial, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (serial.size() <= kBlkIdSize && printable) return absl::OkStatus();
  return BadInput("serial '%s' cannot be; give at most %d printable ASCII characters", serial,
                  kBlkIdSize);
}

absl::Status CheckQueues(uint16_t queues) {
  if (queues <= VirtioBlk::kMaxQueues) return absl::OkStatus();
  return BadInput("%d queues cannot be; give 1 to %d", queues, VirtioBlk::kMaxQueues);
}

// A path, or what is there instead of one.
std::string PathOf(const DiskConfig& config) {
  const auto* file = std::get_if<FileConfig>(&config.backend);
  return file != nullptr ? file->path : kNullName;
}

// What a disk asks of its I/O thread. One without an engine takes the thread that others have by
// default, so that they compare.
Engine EngineOf(const DiskConfig& config) {
  const auto* file = std::get_if<FileConfig>(&config.backend);
  return file != nullptr ? file->aio : Engine::kAuto;
}

void CollectFile(const FileDevice& file, DiskStatistics& result) {
  result.cache = CacheModeName(file.cache_mode());
  for (const FileStatistics& channel : file.statistics()) {
    result.engine = EngineName(channel.engine);
    result.bounced += channel.bounced;
    result.short_transfers += channel.short_transfers;
    result.retries += channel.retries;
    result.served_inline += channel.served_inline;
    result.submit_calls += channel.submit_calls;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Disks>> Disks::Open(std::span<const DiskConfig> configs,
                                                   const IoThreadConfig& io_thread, Logger log) {
  std::unique_ptr<Disks> disks(new Disks(log));
  if (configs.empty()) return disks;
  if (configs.size() > kMaxDisks) {
    return BadInput("%d disks cannot be; a machine takes %d", configs.size(), kMaxDisks);
  }
  for (const DiskConfig& config : configs) {
    RINGSIDE_RETURN_IF_ERROR(CheckSerial(config.serial));
    RINGSIDE_RETURN_IF_ERROR(CheckQueues(config.queues));
    Disk disk = {.config = config, .name = absl::StrFormat("disk%d", disks->disks_.size())};
    RINGSIDE_RETURN_IF_ERROR(disks->OpenDevice(disk));
    disks->disks_.push_back(std::move(disk));
  }
  RINGSIDE_RETURN_IF_ERROR(disks->StartIoThread(configs, io_thread));
  return disks;
}

absl::Status Disks::OpenDevice(Disk& disk) const {
  if (const auto* null = std::get_if<NullConfig>(&disk.config.backend)) {
    RINGSIDE_ASSIGN_OR_RETURN(disk.device, NullDevice::Create(*null));
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto file,
                            FileDevice::Create(std::get<FileConfig>(disk.config.backend), log_));
  disk.file = file.get();
  disk.device = std::move(file);
  return absl::OkStatus();
}

absl::Status Disks::StartIoThread(std::span<const DiskConfig> configs,
                                  const IoThreadConfig& config) {
  const auto asks_for = [configs](Engine engine) {
    return std::ranges::any_of(
        configs, [engine](const DiskConfig& config) { return EngineOf(config) == engine; });
  };
  if (asks_for(Engine::kIoUring) || asks_for(Engine::kAuto)) {
    auto io_thread = IoThread::Start(kIoThreadName, IoThread::Waiter::kUring, config.tuning);
    if (io_thread.ok()) {
      io_thread_ = *std::move(io_thread);
      return absl::OkStatus();
    }
    if (asks_for(Engine::kIoUring)) return io_thread.status();
    log_.Log(Severity::kWarning, "%s", Message(io_thread.status()));
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      io_thread_, IoThread::Start(kIoThreadName, IoThread::Waiter::kEpoll, config.tuning));
  return absl::OkStatus();
}

absl::Status Disks::Plug(uint32_t cpus, const GuestMemory& memory, PciPlatform& platform,
                         PciHost& pci_host) {
  const auto queue_per_cpu = static_cast<uint16_t>(std::min<uint32_t>(cpus, VirtioBlk::kMaxQueues));
  for (Disk& disk : disks_) {
    const DiskConfig& config = disk.config;
    const VirtioBlkConfig blk = {.serial = config.serial.empty() ? disk.name : config.serial,
                                 .queues = config.queues != 0 ? config.queues : queue_per_cpu,
                                 .trace_latency = config.trace_latency};
    disk.kicks.resize(blk.queues);
    disk.blk = std::make_unique<VirtioBlk>(*disk.device, memory,
                                           std::vector<IoThread*>{io_thread_.get()}, blk);
    RINGSIDE_ASSIGN_OR_RETURN(
        disk.pci,
        VirtioPci::Create(*disk.blk, kClassCode,
                          absl::StrFormat("%s (%s)", disk.name, PathOf(config)), platform, log_));
    RINGSIDE_RETURN_IF_ERROR(pci_host.Add(*disk.pci));
  }
  return absl::OkStatus();
}

void Disks::Stop() {
  for (const Disk& disk : disks_) {
    if (disk.pci != nullptr) disk.pci->transport().ResetAndWait();
  }
}

// On the I/O thread, which looks at the rings afterwards: a kick that anyone else took out of its
// eventfd might never have woken it.
void Disks::TakeKicks() {
  for (Disk& disk : disks_) {
    for (uint16_t index = 0; index < disk.blk->queue_count(); ++index) {
      disk.kicks[index] += disk.pci->transport().kick(index).Clear();
    }
  }
}

void Disks::Collect(MachineStatistics& statistics) {
  if (io_thread_ == nullptr) return;
  Event taken;
  TaskOf take([this, &taken] {
    TakeKicks();
    taken.Notify();
  });
  io_thread_->Post(take);
  taken.Wait();
  for (Disk& disk : disks_) {
    DiskStatistics& result = statistics.disks.emplace_back();
    result.path = PathOf(disk.config);
    if (disk.file != nullptr) {
      CollectFile(*disk.file, result);
    } else {
      result.cache = "none";
      result.engine = kNullName;
    }
    for (uint16_t index = 0; index < disk.blk->queue_count(); ++index) {
      const BlkQueueStats& queue = disk.blk->stats(index);
      result.queues.push_back({.reads = queue.reads.Get(),
                               .writes = queue.writes.Get(),
                               .flushes = queue.flushes.Get(),
                               .discards = queue.discards.Get(),
                               .others = queue.others.Get(),
                               .bytes_read = queue.bytes_read.Get(),
                               .bytes_written = queue.bytes_written.Get(),
                               .errors = queue.errors.Get(),
                               .kicks = disk.kicks[index],
                               .batches = queue.batches.Get(),
                               .interrupts = queue.interrupts.Get()});
    }
  }
  const Uring* uring = io_thread_->uring();
  statistics.io_threads.push_back({.name = kIoThreadName,
                                   .waiter = uring != nullptr ? "io_uring" : "epoll",
                                   .turns = io_thread_->stats().turns.Get(),
                                   .spins = io_thread_->stats().spins.Get(),
                                   .spin_hits = io_thread_->stats().spin_hits.Get(),
                                   .spin_used_ns = io_thread_->stats().spin_used_ns.Get(),
                                   .spin_wasted_ns = io_thread_->stats().spin_wasted_ns.Get(),
                                   .sleeps = io_thread_->stats().sleeps.Get(),
                                   .wake_ups = io_thread_->stats().wake_ups.Get(),
                                   .parked = io_thread_->stats().parked.Get(),
                                   .unparked = io_thread_->stats().unparked.Get(),
                                   .io_uring_enters = uring != nullptr ? uring->enters() : 0});
}

std::vector<QueueLatencies> Disks::Latencies() const {
  std::vector<QueueLatencies> latencies;
  for (const Disk& disk : disks_) {
    for (uint16_t queue = 0; queue < disk.blk->queue_count(); ++queue) {
      const LatencyTrace* trace = disk.blk->trace(queue);
      if (trace == nullptr) continue;
      latencies.push_back({.disk = disk.name,
                           .path = PathOf(disk.config),
                           .queue = queue,
                           .overwritten = trace->overwritten(),
                           .records = trace->Records()});
    }
  }
  return latencies;
}

}  // namespace ringside
