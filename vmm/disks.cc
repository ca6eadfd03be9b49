#include "vmm/disks.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/status.h"
#include "base/sync.h"
#include "vmm/pci_slots.h"

namespace ringside {
namespace {

// What the bus has room for, beside the host bridge and the entropy device.
constexpr size_t kMaxDisks = PciHost::kDevices - 2;
constexpr absl::Duration kStopPatience = absl::Seconds(1);
constexpr char kNullName[] = "null";
constexpr char kNvmeEngine[] = "nvme";
constexpr char kPassthroughEngine[] = "uring_cmd";

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
                                                   const IoThreads& io_threads, uint32_t cpus,
                                                   Logger log) {
  std::unique_ptr<Disks> disks(new Disks(log));
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
    RINGSIDE_RETURN_IF_ERROR(disks->Add(config, io_threads, cpus, controllers));
  }
  return disks;
}

absl::Status Disks::Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                        NvmeControllers& controllers) {
  RINGSIDE_RETURN_IF_ERROR(CheckSerial(config.serial));
  RINGSIDE_RETURN_IF_ERROR(CheckQueues(config.queues));
  const size_t index = disks_.size();
  const auto queue_per_cpu =
      static_cast<uint16_t>(std::clamp<uint32_t>(cpus, 1, VirtioBlk::kMaxQueues));
  const uint16_t queues = config.queues != 0 ? config.queues : queue_per_cpu;
  const std::vector<std::string> names = io_threads.names();
  auto mapped = MapQueues(config.shares, queues, io_threads, names[index % names.size()]);
  if (!mapped.ok()) {
    return absl::Status(mapped.status().code(),
                        absl::StrFormat("disk '%s': %s", PathOf(config), Message(mapped.status())));
  }
  Disk disk = {.config = config, .name = DiskName(index), .io_threads = *std::move(mapped)};
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

bool Disks::NeedsUring() const {
  return std::ranges::any_of(disks_, [](const Disk& disk) {
    const auto* file = std::get_if<FileConfig>(&disk.config.backend);
    return file != nullptr && file->aio == Engine::kIoUring;
  });
}

absl::Status Disks::Plug(const DeviceContext& context, PciPlatform& platform, PciHost& pci_host,
                         DeviceQueues& queues) {
  for (Disk& disk : disks_) {
    const DiskConfig& config = disk.config;
    RINGSIDE_RETURN_IF_ERROR(disk.device->MapMemory(context.memory.regions()));
    const VirtioBlkConfig blk = {.serial = config.serial.empty() ? disk.name : config.serial,
                                 .queues = static_cast<uint16_t>(disk.io_threads.size()),
                                 .trace_latency = config.trace_latency};
    std::vector<IoThread*> io_threads;
    for (const std::string& name : disk.io_threads) {
      RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle io_thread, context.io_threads.Find(name));
      io_threads.push_back(io_thread.get());
    }
    disk.blk = std::make_unique<VirtioBlk>(*disk.device, context.memory, io_threads, blk);
    RINGSIDE_ASSIGN_OR_RETURN(
        disk.pci,
        VirtioPci::Create(*disk.blk, absl::StrFormat("%s (%s)", disk.name, PathOf(config)),
                          platform, log_));
    RINGSIDE_RETURN_IF_ERROR(pci_host.Add(*disk.pci, kDiskSlot));
    queues.Add(disk.name, PathOf(config), *disk.blk, *disk.pci);
  }
  return absl::OkStatus();
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

void Disks::Collect(const DeviceQueues& queues, MachineStatistics& statistics) const {
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
    result.queues = queues.Statistics(disk.name);
  }
}

}  // namespace ringside
