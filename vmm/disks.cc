#include "vmm/disks.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/status.h"
#include "faults/disk_filters.h"
#include "nvme/nvme_controllers.h"
#include "vmm/device_ids.h"
#include "vmm/pci_slots.h"

namespace ringside {
namespace {

std::string IdText(const ContentId& content) {
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(content.id.data()), content.id.size()});
}

// What the bus has room for, beside the host bridge and the entropy device.
constexpr size_t kMaxDisks = PciHost::kDevices - 2;

}  // namespace

absl::StatusOr<std::unique_ptr<Disks>> Disks::Open(const MachineConfig& config,
                                                   const IoThreads& io_threads, Logger log) {
  std::unique_ptr<Disks> disks(new Disks(log));
  const std::vector<DiskConfig>& configs = config.disks;
  if (configs.size() > kMaxDisks) {
    return BadInput("disks: there are %d, and a machine has at most %d", configs.size(), kMaxDisks);
  }
  NvmeControllers controllers(log);
  const BlockContext context = {.log = log, .nvme = controllers};
  for (size_t i = 0; i < configs.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(WithFilters(configs[i]).Announce(DiskId(configs[i], i), context));
  }
  for (const ThrottleGroupConfig& group : config.throttle_groups) {
    disks->groups_.push_back(std::make_unique<ThrottleGroup>(group.id));
    disks->groups_.back()->Set(group.limits);
  }
  for (const DiskConfig& disk : configs) {
    RINGSIDE_RETURN_IF_ERROR(disks->Add(disk, io_threads, config.cpus, context));
  }
  return disks;
}

absl::Status Disks::Add(const DiskConfig& config, const IoThreads& io_threads, uint32_t cpus,
                        const BlockContext& context) {
  const size_t index = disks_.size();
  const auto queue_per_cpu =
      static_cast<uint16_t>(std::clamp<uint32_t>(cpus, 1, VirtioBlk::kMaxQueues));
  const uint16_t queues = config.queues != 0 ? config.queues : queue_per_cpu;
  const std::string usual = config.shares.empty() ? io_threads.Usual(index) : "";
  auto mapped = MapQueues(config.shares, queues, io_threads, usual);
  const BlockBackend filtered = WithFilters(config);
  BackendDescription backend = filtered.Describe();
  RINGSIDE_RETURN_IF_ERROR(Of(absl::StrFormat("disk '%s'", backend.name), mapped.status()));
  RINGSIDE_ASSIGN_OR_RETURN(auto device, filtered.Open(context));
  ThrottleGroup* group = nullptr;
  if (!config.throttle_group.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(group, FindGroup(config.throttle_group));
  }
  disks_.emplace_back(config, DiskId(config, index), *std::move(mapped), std::move(backend),
                      std::move(device), group);
  return absl::OkStatus();
}

absl::Status Disks::CheckWaiters(const IoThreads& io_threads) const {
  for (const Disk& disk : disks_) {
    const MutexLock lock(disk.mutex);
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
    const MutexLock lock(disk.mutex);
    RINGSIDE_RETURN_IF_ERROR(Of(disk.id, MapMemory(disk.backend, *disk.device, memory)));
  }
  return absl::OkStatus();
}

absl::Status Disks::MapMemory(const BackendDescription& backend, BlockDevice& device,
                              const GuestMemory& memory) {
  RINGSIDE_RETURN_IF_ERROR(CheckTakes(backend, memory));
  return device.MapMemory(memory.regions());
}

absl::Status Disks::CheckTakes(const BackendDescription& backend, const GuestMemory& memory) {
  if (memory.is_shared() || backend.takes_any_memory) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "'%s' reaches memory by DMA, which cannot be mapped from a snapshot: give "
      "restore-memory=copied%s",
      backend.name, memory.userfault() != nullptr ? ", and no restore-handler" : ""));
}

absl::Status Disks::CheckTakeAnyMemory() const {
  for (const Disk& disk : disks_) {
    const MutexLock lock(disk.mutex);
    if (disk.backend.takes_any_memory) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: '%s' reaches memory by DMA, which others cannot share: save the machine instead",
        disk.id, disk.backend.name));
  }
  return absl::OkStatus();
}

absl::Status Disks::Plug(const DeviceContext& context, EventQueue& events, Pauser& pauser,
                         GuestDevices& devices) {
  for (Disk& disk : disks_) {
    const DiskConfig& config = disk.config;
    if (disk.reports == nullptr) {
      disk.reports = std::make_unique<DiskReports>(disk.id, events.Of(disk.id), pauser, log_);
    }
    const VirtioBlkConfig blk = {
        .serial = config.serial.empty() ? disk.id.substr(0, kBlkIdSize) : config.serial,
        .queues = static_cast<uint16_t>(disk.io_threads.size()),
        .trace_latency = config.trace_latency,
        .reports = disk.reports.get(),
        .throttle = disk.throttle.get(),
        .rerror = config.rerror,
        .werror = config.werror};
    RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThread*> io_threads,
                              context.io_threads.FindOrFirst(disk.io_threads));
    const MutexLock lock(disk.mutex);
    RINGSIDE_RETURN_IF_ERROR(
        devices.Plug(disk.id, disk.backend.name, kDiskSlot,
                     std::make_unique<VirtioBlk>(*disk.device, context.memory, io_threads, blk)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ThrottleGroup*> Disks::FindGroup(const std::string& id) {
  std::vector<std::string> ids;
  for (const auto& group : groups_) {
    if (group->id() == id) return group.get();
    ids.push_back(group->id());
  }
  if (ids.empty()) return absl::NotFoundError("the machine has no throttle groups");
  return absl::NotFoundError(
      absl::StrFormat("there is no throttle group '%s': did you mean '%s'?", id, Nearest(id, ids)));
}

absl::Status Disks::SetThrottle(const std::string& id, const ThrottleLimits& limits) {
  RINGSIDE_RETURN_IF_ERROR(Throttle::Check(absl::StrFormat("disk '%s'", id), limits));
  RINGSIDE_ASSIGN_OR_RETURN(Disk* const disk, Find(id));
  disk->throttle->Set(limits);
  return absl::OkStatus();
}

absl::Status Disks::SetGroupThrottle(const std::string& id, const ThrottleLimits& limits) {
  RINGSIDE_RETURN_IF_ERROR(Throttle::Check(absl::StrFormat("throttle group '%s'", id), limits));
  RINGSIDE_ASSIGN_OR_RETURN(ThrottleGroup* const group, FindGroup(id));
  group->Set(limits);
  return absl::OkStatus();
}

void Disks::EndSoon() {
  for (const Disk& disk : disks_) {
    const MutexLock lock(disk.mutex);
    disk.device->EndSoon();
  }
}

void Disks::Save(HostState& state) const {
  const int64_t now_ns = MonotonicNs();
  for (const Disk& disk : disks_) {
    state.AddDebts(disk.id, false, disk.throttle->own().Debts(now_ns));
    const MutexLock lock(disk.mutex);
    if (const auto content = disk.device->KeepFound())
      state.contents.push_back({disk.id, *content});
  }
  for (const auto& group : groups_) {
    state.AddDebts(group->id(), true, group->throttle().Debts(now_ns));
  }
}

absl::Status Disks::Restore(const HostState& state) {
  for (const HostState::Content& content : state.contents) {
    RINGSIDE_RETURN_IF_ERROR(CheckContent(content));
  }
  const int64_t now_ns = MonotonicNs();
  for (Disk& disk : disks_) {
    disk.throttle->own().Owe(state.DebtsOf(disk.id, false), now_ns);
  }
  for (const auto& group : groups_) {
    group->throttle().Owe(state.DebtsOf(group->id(), true), now_ns);
  }
  return absl::OkStatus();
}

// One that is no overlay cannot be told from what was saved: an image, say, that was made of it.
absl::Status Disks::CheckContent(const HostState::Content& saved) const {
  const auto disk = std::ranges::find(disks_, saved.disk, &Disk::id);
  if (disk == disks_.end()) return absl::OkStatus();
  const MutexLock lock(disk->mutex);
  const std::vector<ContentId> found = disk->device->Found();
  if (found.empty() || std::ranges::find(found, saved.id) != found.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "disk '%s': '%s' is neither the overlay %s that the saved machine had nor made on it, or it "
      "has been written since: give it a copy of that, or an overlay on it",
      saved.disk, disk->backend.name, IdText(saved.id)));
}

void Disks::Collect(const DeviceQueues& queues, MachineStatistics& statistics) const {
  for (const Disk& disk : disks_) {
    std::vector<QueueStatistics> of_queues = queues.Statistics(disk.id);
    const MutexLock lock(disk.mutex);
    BlockStatistics device = disk.device->Statistics();
    statistics.disks.push_back({.id = disk.id,
                                .path = disk.backend.name,
                                .size = disk.device->info().size,
                                .cache = std::move(device.cache),
                                .engine = std::move(device.engine),
                                .counters = std::move(device.counters),
                                .throttle = disk.throttle->limits(),
                                .throttle_group = disk.config.throttle_group,
                                .queues = std::move(of_queues)});
  }
  for (const auto& group : groups_) {
    statistics.throttle_groups.push_back({group->id(), group->throttle().limits()});
  }
}

}  // namespace ringside
