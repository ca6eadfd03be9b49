#include "vmm/device_queues.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/status.h"

namespace ringside {
namespace {

QueueStatistics Counters(const QueueStats& queue, uint64_t kicks) {
  return {.io_thread = "",
          .reads = queue.reads.Get(),
          .writes = queue.writes.Get(),
          .flushes = queue.flushes.Get(),
          .discards = queue.discards.Get(),
          .others = queue.others.Get(),
          .bytes_read = queue.bytes_read.Get(),
          .bytes_written = queue.bytes_written.Get(),
          .errors = queue.errors.Get(),
          .kicks = kicks,
          .kicks_on = queue.kicks_on.Get(),
          .kicks_off = queue.kicks_off.Get(),
          .batches = queue.batches.Get(),
          .interrupts = queue.interrupts.Get()};
}

}  // namespace

void DeviceQueues::Add(const GuestDevices::Function& function) {
  if (function.queued != nullptr) devices_.emplace_back(function);
}

void DeviceQueues::BeginReplacing() {
  for (Entry& entry : devices_) entry.BeginMove(absl::InfiniteFuture());
}

void DeviceQueues::Replace(const std::vector<GuestDevices::Function>& functions) {
  auto entry = devices_.begin();
  for (const GuestDevices::Function& function : functions) {
    if (function.queued == nullptr) continue;
    const MutexLock lock(entry->mutex);
    entry->device = function.queued;
    entry->pci = function.pci.get();
    ++entry;
  }
}

void DeviceQueues::EndReplacing() {
  for (Entry& entry : devices_) entry.EndMove();
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

QueuedDevice* DeviceQueues::Entry::BeginMove(absl::Time deadline) {
  const MutexLock lock(mutex);
  while (moving) {
    if (moved.wait_until(mutex, absl::ToChronoTime(deadline)) == std::cv_status::timeout) {
      return nullptr;
    }
  }
  moving = true;
  return device;
}

void DeviceQueues::Entry::EndMove() {
  const MutexLock lock(mutex);
  moving = false;
  moved.notify_one();
}

absl::Status DeviceQueues::Move(const std::string& device, uint16_t queue,
                                const std::string& io_thread, absl::Duration patience) {
  // Of one who may have given up when it is over.
  struct Outcome {
    IoThreads::Handle to;  // kept until the queue has arrived, and so needs it
    Event known;
    absl::Status status;
  };
  const absl::Time deadline = absl::Now() + patience;
  RINGSIDE_ASSIGN_OR_RETURN(Entry* const entry, Find(device));
  if (queue >= entry->queues) {
    return BadInput("%s has no queue %d; it has 0 to %d", entry->name, queue, entry->queues - 1);
  }
  const auto outcome = std::make_shared<Outcome>();
  RINGSIDE_ASSIGN_OR_RETURN(outcome->to, io_threads_.Find(io_thread));
  QueuedDevice* const moved = entry->BeginMove(deadline);
  if (moved == nullptr) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "queue %d of %s was not moved: after %s another one of it is still being moved; try again",
        queue, entry->name, absl::FormatDuration(patience)));
  }
  IoThread& to = *outcome->to;
  moved->MoveQueue(queue, to, [outcome, entry](const absl::Status& status) {
    outcome->status = status;
    outcome->to = nullptr;
    entry->EndMove();
    outcome->known.Notify();
  });
  if (outcome->known.WaitFor(deadline - absl::Now())) return outcome->status;
  return absl::DeadlineExceededError(
      absl::StrFormat("queue %d of %s has not moved within %s: requests of it are still in flight; "
                      "it moves to '%s' "
                      "once they are done",
                      queue, entry->name, absl::FormatDuration(patience), io_thread));
}

absl::Status DeviceQueues::RemoveIoThread(const std::string& name) {
  const auto is_needed = [this](const IoThread& io_thread) {
    return std::ranges::any_of(devices_, [&](const Entry& entry) {
      const MutexLock lock(entry.mutex);
      return entry.device->Needs(io_thread);
    });
  };
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle removed, io_threads_.Remove(name, is_needed));
  for (const Entry& entry : devices_) {
    const MutexLock lock(entry.mutex);
    entry.device->Forget(*removed);
  }
  return absl::OkStatus();
}

std::vector<QueueStatistics> DeviceQueues::Statistics(const std::string& device) const {
  std::vector<QueueStatistics> all;
  for (const Entry& entry : devices_) {
    if (entry.name != device) continue;
    std::vector<const IoThread*> served_by;
    {
      const MutexLock lock(entry.mutex);
      for (uint16_t index = 0; index < entry.queues; ++index) {
        all.push_back(
            Counters(entry.device->stats(index), entry.pci->transport().kick(index).count()));
        served_by.push_back(&entry.device->io_thread(index));
      }
    }
    // Without the lock, which is taken with that of the names held.
    for (uint16_t index = 0; index < entry.queues; ++index) {
      all[index].io_thread = io_threads_.NameOf(*served_by[index]);
    }
  }
  return all;
}

std::vector<QueueLatencies> DeviceQueues::Latencies() const {
  std::vector<QueueLatencies> latencies;
  for (const Entry& entry : devices_) {
    const MutexLock lock(entry.mutex);
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      const LatencyTrace* trace = entry.device->trace(queue);
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
