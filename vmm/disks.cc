#include "vmm/disks.h"

#include <algorithm>

#include "base/status.h"
#include "nvme/nvme_controllers.h"
#include "vmm/pci_slots.h"

namespace ringside {
namespace {

// What the bus has room for, beside the host bridge and the entropy device.
constexpr size_t kMaxDisks = PciHost::kDevices - 2;

}  // namespace

std::string DiskId(const DiskConfig& config, size_t index) {
  return config.id.empty() ? absl::StrFormat("disk%d", index) : config.id;
}

absl::StatusOr<std::unique_ptr<Disks>> Disks::Open(std::span<const DiskConfig> configs,
                                                   const IoThreads& io_threads, uint32_t cpus,
                                                   Logger log) {
  std::unique_ptr<Disks> disks(new Disks(log));
  if (configs.size() > kMaxDisks) {
    return BadInput("disks: there are %d, and a machine has at most %d", configs.size(), kMaxDisks);
  }
  NvmeControllers controllers(log);
  const BlockContext context = {.log = log, .nvme = controllers};
  for (size_t i = 0; i < configs.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(configs[i].backend.Announce(DiskId(configs[i], i), context));
  }
  for (const DiskConfig& config : configs) {
    RINGSIDE_RETURN_IF_ERROR(disks->Add(config, io_threads, cpus, context));
  }
  return disks;
}

absl::Status Disks::Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                        const BlockContext& context) {
  const size_t index = disks_.size();
  const auto queue_per_cpu =
      static_cast<uint16_t>(std::clamp<uint32_t>(cpus, 1, VirtioBlk::kMaxQueues));
  const uint16_t queues = config.queues != 0 ? config.queues : queue_per_cpu;
  const std::vector<std::string> names = io_threads.names();
  auto mapped = MapQueues(config.shares, queues, io_threads, names[index % names.size()]);
  BackendDescription backend = config.backend.Describe();
  if (!mapped.ok()) {
    return absl::Status(mapped.status().code(),
                        absl::StrFormat("disk '%s': %s", backend.name, Message(mapped.status())));
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto device, config.backend.Open(context));
  disks_.push_back({.config = config,
                    .id = DiskId(config, index),
                    .backend = std::move(backend),
                    .device = std::move(device),
                    .io_threads = *std::move(mapped)});
  return absl::OkStatus();
}

absl::Status Disks::CheckWaiters(const IoThreads& io_threads) const {
  for (const Disk& disk : disks_) {
    if (!disk.backend.needs_uring) continue;
    for (const std::string& name : disk.io_threads) {
      RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle io_thread, io_threads.Find(name));
      if (io_thread->uring() != nullptr) continue;
      RINGSIDE_RETURN_IF_ERROR(io_threads.uring_status());
      return absl::FailedPreconditionError(
          absl::StrFormat("disk '%s' needs io_uring, and I/O thread '%s' does not use it: give the "
                          "thread waiter=io_uring, or the disk another aio",
                          disk.backend.name, name));
    }
  }
  return absl::OkStatus();
}

absl::Status Disks::MapMemory(const GuestMemory& memory) {
  for (const Disk& disk : disks_) {
    RINGSIDE_RETURN_IF_ERROR(disk.device->MapMemory(memory.regions()));
  }
  return absl::OkStatus();
}

absl::Status Disks::Plug(const DeviceContext& context, EventQueue& events,
                         GuestDevices& devices) const {
  for (const Disk& disk : disks_) {
    const DiskConfig& config = disk.config;
    const VirtioBlkConfig blk = {
        .serial = config.serial.empty() ? disk.id.substr(0, kBlkIdSize) : config.serial,
        .queues = static_cast<uint16_t>(disk.io_threads.size()),
        .trace_latency = config.trace_latency,
        .reports = events.Of(disk.id)};
    RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThread*> io_threads,
                              context.io_threads.FindOrFirst(disk.io_threads));
    RINGSIDE_RETURN_IF_ERROR(
        devices.Plug(disk.id, disk.backend.name, kDiskSlot,
                     std::make_unique<VirtioBlk>(*disk.device, context.memory, io_threads, blk)));
  }
  return absl::OkStatus();
}

void Disks::EndSoon() {
  for (const Disk& disk : disks_) disk.device->EndSoon();
}

void Disks::Collect(const DeviceQueues& queues, MachineStatistics& statistics) const {
  for (const Disk& disk : disks_) {
    BlockStatistics device = disk.device->Statistics();
    statistics.disks.push_back({.id = disk.id,
                                .path = disk.backend.name,
                                .cache = std::move(device.cache),
                                .engine = std::move(device.engine),
                                .counters = std::move(device.counters),
                                .queues = queues.Statistics(disk.id)});
  }
}

}  // namespace ringside
