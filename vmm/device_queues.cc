#include "vmm/device_queues.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/status.h"

namespace ringside {

void DeviceQueues::Add(std::string name, std::string path, QueuedDevice& device, VirtioPci& pci) {
  devices_.emplace_back(std::move(name), std::move(path), device, pci);
}

absl::StatusOr<DeviceQueues::Entry*> DeviceQueues::Find(const std::string& name) {
  std::vector<std::string> names;
  for (Entry& entry : devices_) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  return absl::NotFoundError(
      absl::StrFormat("device '%s' is unknown, or has no queues to move; "
                      "did you mean '%s'?",
                      name, Nearest(name, names)));
}

absl::Status DeviceQueues::Move(const std::string& device, uint16_t queue,
                                const std::string& io_thread) {
  RINGSIDE_ASSIGN_OR_RETURN(Entry* const moved, Find(device));
  if (queue >= moved->device.queue_count()) {
    return BadInput("%s has no queue %d; it has 0 to %d", moved->name, queue,
                    moved->device.queue_count() - 1);
  }
  // Kept until the queue has arrived, and so needs it.
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle to, io_threads_.Find(io_thread));
  const MutexLock lock(moved->moving);
  Event over;
  absl::Status status;
  moved->device.MoveQueue(queue, *to, [&](const absl::Status& result) {
    status = result;
    over.Notify();
  });
  over.Wait();
  return status;
}

absl::Status DeviceQueues::RemoveIoThread(const std::string& name) {
  const auto is_needed = [this](const IoThread& io_thread) {
    return std::ranges::any_of(devices_,
                               [&](const Entry& entry) { return entry.device.Needs(io_thread); });
  };
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle removed, io_threads_.Remove(name, is_needed));
  for (const Entry& entry : devices_) entry.device.Forget(*removed);
  return absl::OkStatus();
}

std::vector<QueueStatistics> DeviceQueues::Statistics(const std::string& device) const {
  std::vector<QueueStatistics> all;
  for (const Entry& entry : devices_) {
    if (entry.name != device) continue;
    for (uint16_t index = 0; index < entry.device.queue_count(); ++index) {
      const QueueStats& queue = entry.device.stats(index);
      all.push_back({.io_thread = io_threads_.NameOf(entry.device.io_thread(index)),
                     .reads = queue.reads.Get(),
                     .writes = queue.writes.Get(),
                     .flushes = queue.flushes.Get(),
                     .discards = queue.discards.Get(),
                     .others = queue.others.Get(),
                     .bytes_read = queue.bytes_read.Get(),
                     .bytes_written = queue.bytes_written.Get(),
                     .errors = queue.errors.Get(),
                     .kicks = entry.pci.transport().kick(index).count(),
                     .kicks_on = queue.kicks_on.Get(),
                     .kicks_off = queue.kicks_off.Get(),
                     .batches = queue.batches.Get(),
                     .interrupts = queue.interrupts.Get()});
    }
  }
  return all;
}

std::vector<QueueLatencies> DeviceQueues::Latencies() const {
  std::vector<QueueLatencies> latencies;
  for (const Entry& entry : devices_) {
    for (uint16_t queue = 0; queue < entry.device.queue_count(); ++queue) {
      const LatencyTrace* trace = entry.device.trace(queue);
      if (trace == nullptr) continue;
      latencies.push_back({.disk = entry.name,
                           .path = entry.path,
                           .queue = queue,
                           .overwritten = trace->overwritten(),
                           .records = trace->Records()});
    }
  }
  return latencies;
}

}  // namespace ringside
