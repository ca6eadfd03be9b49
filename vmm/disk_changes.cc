// What becomes of a machine's disks while its guest uses them.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/nearest.h"
#include "base/status.h"
#include "block/block_resize.h"
#include "nvme/nvme_controllers.h"
#include "vmm/disks.h"

namespace ringside {
namespace {

// Whether a disk like `next` can stand where the guest knows one like `now`.
absl::Status CheckStandIn(const BlockInfo& now, const BlockInfo& next) {
  if (next.logical_block != now.logical_block) {
    return BadInput("it has blocks of %d bytes and the guest was told %d: give one with these",
                    next.logical_block, now.logical_block);
  }
  if (next.read_only && !now.read_only) {
    return BadInput("it is read-only and the guest may write: leave readonly=on out");
  }
  if (now.can_discard && !now.read_only && !next.can_discard) {
    return BadInput("it cannot discard, and the guest was told that it can: give one that can");
  }
  if (next.size < now.size) {
    return BadInput("it has %d bytes and the guest was told %d: give one as large",
                    uint64_t{next.size}, uint64_t{now.size});
  }
  return CheckGrown(now, next.size);
}

absl::Status NotSwapped(const std::string& id, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrFormat("%s keeps the backend that it has: %s", id, Message(why)));
}

}  // namespace

absl::StatusOr<Disks::Disk*> Disks::Find(const std::string& id) {
  std::vector<std::string> ids;
  for (Disk& disk : disks_) {
    if (disk.id == id) return &disk;
    ids.push_back(disk.id);
  }
  if (ids.empty()) {
    return absl::NotFoundError(absl::StrFormat("there is no disk '%s': there are none", id));
  }
  return absl::NotFoundError(
      absl::StrFormat("there is no disk '%s': did you mean '%s'?", id, Nearest(id, ids)));
}

std::vector<std::string> Disks::OnHostDevice(uint64_t device) const {
  std::vector<std::string> ids;
  for (const Disk& disk : disks_) {
    const MutexLock lock(disk.mutex);
    const uint64_t of_disk = disk.device->info().host_device;
    if (of_disk != 0 && (device == 0 || device == of_disk)) ids.push_back(disk.id);
  }
  return ids;
}

absl::StatusOr<uint64_t> Disks::Resize(const std::string& id, std::optional<uint64_t> size,
                                       DeviceQueues& queues, absl::Duration patience) {
  RINGSIDE_ASSIGN_OR_RETURN(Disk* const disk, Find(id));
  uint64_t now = 0;
  const auto resize = [&](QueuedDevice& device, VirtioPci& pci) -> absl::Status {
    BlockDevice* storage;
    {
      const MutexLock lock(disk->mutex);
      storage = disk->device.get();
    }
    const uint64_t before = storage->info().size;
    if (const absl::Status status = storage->Resize(size); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrFormat("%s was not resized: %s", id, Message(status)));
    }
    now = storage->info().size;
    if (now == before) return absl::OkStatus();
    pci.transport().ChangeConfig([&] { static_cast<VirtioBlk&>(device).SetSize(now); });
    log_.Log(Severity::kInfo, "%s has %d bytes now, and had %d", id, now, before);
    return absl::OkStatus();
  };
  RINGSIDE_RETURN_IF_ERROR(queues.Change(id, patience, resize));
  return now;
}

absl::Status Disks::Flush(DeviceQueues& queues, Deadline deadline,
                          absl::FunctionRef<bool()> is_over) {
  for (const Disk& disk : disks_) {
    const auto flush = [&](QueuedDevice& device, VirtioPci&) -> absl::Status {
      const int result = static_cast<VirtioBlk&>(device).Flush(is_over);
      if (result == 0) return absl::OkStatus();
      const std::string what =
          absl::StrFormat("disk '%s': what its guest has written cannot be flushed", disk.id);
      return absl::FailedPreconditionError(ErrnoError(-result, what, "mend its storage").message());
    };
    const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
    RINGSIDE_RETURN_IF_ERROR(queues.Change(disk.id, left, flush));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockDevice>> Disks::OpenNext(const Disk& disk,
                                                             const BlockBackend& backend,
                                                             const GuestMemory& memory) const {
  NvmeControllers controllers(log_);
  const BlockContext context = {.log = log_, .nvme = controllers};
  RINGSIDE_RETURN_IF_ERROR(backend.Announce(disk.id, context));
  RINGSIDE_ASSIGN_OR_RETURN(auto next, backend.Open(context));
  RINGSIDE_RETURN_IF_ERROR(MapMemory(backend.Describe(), *next, memory));
  return next;
}

absl::Status Disks::Swap(const std::string& id, const BlockBackend& backend,
                         const Surroundings& around, absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_ASSIGN_OR_RETURN(Disk* const disk, Find(id));
  if (!disk->config.fault_script.empty() || !disk->config.record.path.empty()) {
    return NotSwapped(id, absl::FailedPreconditionError(
                              "it has faults or a record, which are those of one backend"));
  }
  BackendDescription description = backend.Describe();
  absl::StatusOr<std::unique_ptr<BlockDevice>> next = OpenNext(*disk, backend, around.memory);
  if (!next.ok()) return NotSwapped(id, next.status());
  const std::string path = description.name;
  const auto exchange = [&](QueuedDevice& device, VirtioPci& pci) -> absl::Status {
    // The memory may have been frozen since `next` was opened.
    RINGSIDE_RETURN_IF_ERROR(CheckTakes(description, around.memory));
    return Exchange(*disk, *next, description, device, pci, deadline);
  };
  absl::Status status = around.queues.Change(id, patience, exchange);
  // What is in `next` now, the one or the other, is closed here.
  if (!status.ok()) return NotSwapped(id, status);
  around.queues.SetPath(id, path);
  return status;
}

absl::Status Disks::Exchange(Disk& disk, std::unique_ptr<BlockDevice>& next,
                             BackendDescription& description, QueuedDevice& device, VirtioPci& pci,
                             Deadline deadline) {
  uint64_t before;
  {
    const MutexLock lock(disk.mutex);
    before = disk.device->info().size;
    RINGSIDE_RETURN_IF_ERROR(CheckStandIn(disk.device->info(), next->info()));
  }
  auto& blk = static_cast<VirtioBlk&>(device);
  Event rests;
  TaskOf rest([&rests] { rests.Notify(); });
  blk.BeginExchange(rest);
  // Ends the way there, too: the task has run then.
  const absl::Cleanup end = [&blk] { blk.EndExchange(); };
  if (!rests.WaitUntil(deadline)) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "its storage has not answered %d requests; wait longer, or try again", blk.in_flight()));
  }
  RINGSIDE_RETURN_IF_ERROR(blk.Exchange(*next));
  const uint64_t now = next->info().size;
  log_.Log(Severity::kInfo, "%s is '%s' from now on", disk.id, description.name);
  {
    const MutexLock lock(disk.mutex);
    disk.device.swap(next);
    std::swap(disk.backend, description);
  }
  if (now != before) pci.transport().ChangeConfig([&] { blk.SetSize(now); });
  return absl::OkStatus();
}

}  // namespace ringside
