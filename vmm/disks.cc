#include "vmm/disks.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/status.h"
#include "base/sync.h"

namespace ringside {
namespace {

// What the bus has room for, beside the host bridge and the entropy device.
constexpr size_t kMaxDisks = PciHost::kDevices - 2;
constexpr absl::Duration kStopPatience = absl::Seconds(1);
constexpr char kNullName[] = "null";
constexpr char kNvmeEngine[] = "nvme";
constexpr char kPassthroughEngine[] = "uring_cmd";
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
  if (const auto* file = std::get_if<FileConfig>(&config.backend)) return file->path;
  if (const auto* generic = std::get_if<NvmePassthroughConfig>(&config.backend)) {
    return generic->path;
  }
  const auto* nvme = std::get_if<NvmeConfig>(&config.backend);
  return nvme != nullptr ? NvmeName(*nvme) : kNullName;
}

// What a disk asks of its I/O thread. One without an engine takes the thread that others have by
// default, so that they compare.
Engine EngineOf(const DiskConfig& config) {
  const auto* file = std::get_if<FileConfig>(&config.backend);
  return file != nullptr ? file->aio : Engine::kAuto;
}

std::string DiskName(size_t index) {
  return absl::StrFormat("disk%d", index);
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
                                                   std::span<const IoThreadConfig> io_threads,
                                                   uint32_t cpus, Logger log) {
  std::unique_ptr<Disks> disks(new Disks(log));
  RINGSIDE_ASSIGN_OR_RETURN(disks->io_threads_, IoThreads::Create(io_threads));
  if (configs.size() > kMaxDisks) {
    return BadInput("%d disks cannot be; a machine takes %d", configs.size(), kMaxDisks);
  }
  NvmeControllers controllers(log);
  for (size_t i = 0; i < configs.size(); ++i) {
    const auto* nvme = std::get_if<NvmeConfig>(&configs[i].backend);
    if (nvme == nullptr) continue;
    RINGSIDE_RETURN_IF_ERROR(controllers.Announce(DiskName(i), *nvme, configs[i].nvme_timeout));
  }
  for (const DiskConfig& config : configs) {
    RINGSIDE_RETURN_IF_ERROR(disks->Add(config, cpus, controllers));
  }
  if (!configs.empty()) RINGSIDE_RETURN_IF_ERROR(disks->StartIoThreads(configs));
  return disks;
}

absl::Status Disks::Add(const DiskConfig& config, uint32_t cpus, NvmeControllers& controllers) {
  RINGSIDE_RETURN_IF_ERROR(CheckSerial(config.serial));
  RINGSIDE_RETURN_IF_ERROR(CheckQueues(config.queues));
  const size_t index = disks_.size();
  const auto queue_per_cpu =
      static_cast<uint16_t>(std::clamp<uint32_t>(cpus, 1, VirtioBlk::kMaxQueues));
  const uint16_t queues = config.queues != 0 ? config.queues : queue_per_cpu;
  auto io_threads = MapQueues(config.shares, queues, *io_threads_, index % io_threads_->size());
  if (!io_threads.ok()) {
    return absl::Status(io_threads.status().code(), absl::StrFormat("disk '%s': %s", PathOf(config),
                                                                    Message(io_threads.status())));
  }
  Disk disk = {.config = config,
               .name = DiskName(index),
               .io_threads = *std::move(io_threads),
               .kicks = std::vector<uint64_t>(queues),
               .moving = std::make_unique<Mutex>()};
  RINGSIDE_RETURN_IF_ERROR(OpenDevice(disk, controllers));
  disks_.push_back(std::move(disk));
  return absl::OkStatus();
}

absl::Status Disks::OpenDevice(Disk& disk, NvmeControllers& controllers) const {
  if (const auto* null = std::get_if<NullConfig>(&disk.config.backend)) {
    RINGSIDE_ASSIGN_OR_RETURN(disk.device, NullDevice::Create(*null));
    return absl::OkStatus();
  }
  if (const auto* nvme = std::get_if<NvmeConfig>(&disk.config.backend)) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, controllers.Open(*nvme));
    disk.nvme = device.get();
    disk.device = std::move(device);
    return absl::OkStatus();
  }
  if (const auto* generic = std::get_if<NvmePassthroughConfig>(&disk.config.backend)) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, NvmePassthroughDevice::Create(*generic, log_));
    disk.passthrough = device.get();
    disk.device = std::move(device);
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto file,
                            FileDevice::Create(std::get<FileConfig>(disk.config.backend), log_));
  disk.file = file.get();
  disk.device = std::move(file);
  return absl::OkStatus();
}

absl::Status Disks::StartIoThreads(std::span<const DiskConfig> configs) {
  const auto asks_for = [configs](Engine engine) {
    return std::ranges::any_of(
        configs, [engine](const DiskConfig& config) { return EngineOf(config) == engine; });
  };
  if (asks_for(Engine::kIoUring) || asks_for(Engine::kAuto)) {
    // On every thread, as any queue may move to it.
    const absl::Status status = io_threads_->Start(IoThread::Waiter::kUring);
    if (status.ok() || asks_for(Engine::kIoUring)) return status;
    log_.Log(Severity::kWarning, "%s", Message(status));
  }
  return io_threads_->Start(IoThread::Waiter::kEpoll);
}

absl::Status Disks::Plug(const GuestMemory& memory, PciPlatform& platform, PciHost& pci_host) {
  for (Disk& disk : disks_) {
    const DiskConfig& config = disk.config;
    RINGSIDE_RETURN_IF_ERROR(disk.device->MapMemory(memory.regions()));
    const VirtioBlkConfig blk = {.serial = config.serial.empty() ? disk.name : config.serial,
                                 .queues = static_cast<uint16_t>(disk.io_threads.size()),
                                 .trace_latency = config.trace_latency};
    std::vector<IoThread*> io_threads;
    io_threads.reserve(disk.io_threads.size());
    for (const size_t index : disk.io_threads) io_threads.push_back(&(*io_threads_)[index]);
    disk.blk = std::make_unique<VirtioBlk>(*disk.device, memory, io_threads, blk);
    RINGSIDE_ASSIGN_OR_RETURN(
        disk.pci,
        VirtioPci::Create(*disk.blk, kClassCode,
                          absl::StrFormat("%s (%s)", disk.name, PathOf(config)), platform, log_));
    RINGSIDE_RETURN_IF_ERROR(pci_host.Add(*disk.pci));
  }
  return absl::OkStatus();
}

absl::Status Disks::MoveQueue(size_t disk, uint16_t queue, const std::string& io_thread) {
  if (disk >= disks_.size()) {
    return BadInput("disk %d cannot be moved; this machine has %d", disk, disks_.size());
  }
  Disk& moved = disks_[disk];
  if (queue >= moved.blk->queue_count()) {
    return BadInput("%s has no queue %d; it has 0 to %d", moved.name, queue,
                    moved.blk->queue_count() - 1);
  }
  RINGSIDE_ASSIGN_OR_RETURN(const size_t to, io_threads_->Find(io_thread));
  const MutexLock lock(*moved.moving);
  Event over;
  absl::Status status;
  moved.blk->MoveQueue(queue, (*io_threads_)[to], [&](const absl::Status& result) {
    status = result;
    over.Notify();
  });
  over.Wait();
  return status;
}

absl::Status Disks::SetPoll(const std::string& io_thread, const PollConfig& poll) {
  RINGSIDE_ASSIGN_OR_RETURN(const size_t index, io_threads_->Find(io_thread));
  return io_threads_->SetPoll(index, poll);
}

void Disks::Stop() {
  // All before any is waited for.
  for (const Disk& disk : disks_) disk.device->EndSoon();
  for (const Disk& disk : disks_) {
    if (disk.pci == nullptr) continue;
    disk.pci->transport().SetStatus(0);
    disk.blk->Cancel();
  }
  const absl::Time patience_ends = absl::Now() + kStopPatience;
  for (const Disk& disk : disks_) {
    if (disk.pci == nullptr) continue;
    VirtioTransport& transport = disk.pci->transport();
    if (!transport.ResetEnds(patience_ends - absl::Now())) LogWaitingFor(disk);
  }
  for (const Disk& disk : disks_) {
    if (disk.pci != nullptr) disk.pci->transport().ResetAndWait();
  }
}

void Disks::LogWaitingFor(const Disk& disk) const {
  if (disk.blk->in_flight() == 0) {
    log_.Log(
        Severity::kWarning,
        "%s (%s): its I/O thread does not come back from what another disk's storage or server "
        "has to answer; the machine ends when it has",
        disk.name, PathOf(disk.config));
    return;
  }
  log_.Log(
      Severity::kWarning,
      "%s (%s): its storage has %d requests and does not give them back; the machine ends when "
      "it has (is the file system frozen, or the storage gone?)",
      disk.name, PathOf(disk.config), disk.blk->in_flight());
}

// On the I/O thread, of the queues that it serves: it looks at their rings afterwards.
void Disks::TakeKicks(const IoThread& here) {
  for (Disk& disk : disks_) {
    for (uint16_t index = 0; index < disk.blk->queue_count(); ++index) {
      disk.kicks[index] += disk.blk->TakeKicks(index, here, disk.pci->transport().kick(index));
    }
  }
}

void Disks::Collect(MachineStatistics& statistics) {
  if (disks_.empty()) return;
  for (size_t i = 0; i < io_threads_->size(); ++i) {
    // A queue that moves just now may be passed over: its kicks wait for the next time.
    IoThread& io_thread = (*io_threads_)[i];
    RunOnIoThread(io_thread, [&] { TakeKicks(io_thread); });
  }
  for (const Disk& disk : disks_) {
    DiskStatistics& result = statistics.disks.emplace_back();
    result.path = PathOf(disk.config);
    result.cache = CacheModeName(CacheMode::kNone);
    if (disk.file != nullptr) {
      CollectFile(*disk.file, result);
    } else if (disk.nvme != nullptr) {
      result.engine = kNvmeEngine;
      result.nvme = disk.nvme->statistics();
    } else if (disk.passthrough != nullptr) {
      result.engine = kPassthroughEngine;
      result.passthrough = disk.passthrough->statistics();
    } else {
      result.engine = kNullName;
    }
    CollectQueues(disk, result);
  }
  statistics.io_threads = io_threads_->Statistics();
}

void Disks::CollectQueues(const Disk& disk, DiskStatistics& result) const {
  for (uint16_t index = 0; index < disk.blk->queue_count(); ++index) {
    const BlkQueueStats& queue = disk.blk->stats(index);
    result.queues.push_back({.io_thread = io_threads_->NameOf(disk.blk->io_thread(index)),
                             .reads = queue.reads.Get(),
                             .writes = queue.writes.Get(),
                             .flushes = queue.flushes.Get(),
                             .discards = queue.discards.Get(),
                             .others = queue.others.Get(),
                             .bytes_read = queue.bytes_read.Get(),
                             .bytes_written = queue.bytes_written.Get(),
                             .errors = queue.errors.Get(),
                             .kicks = disk.kicks[index],
                             .kicks_on = queue.kicks_on.Get(),
                             .kicks_off = queue.kicks_off.Get(),
                             .batches = queue.batches.Get(),
                             .interrupts = queue.interrupts.Get()});
  }
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
