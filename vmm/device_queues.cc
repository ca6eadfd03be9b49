#include "vmm/device_queues.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {
namespace {

SignalStatistics Signals(const SignalStats& signals) {
  SignalStatistics statistics = {.held = signals.held.Get(),
                                 .held_ns = signals.held_ns.Get(),
                                 .dropped = signals.dropped.Get()};
  for (size_t i = 0; i < kSignalReasons; ++i) statistics.raised[i] = signals.raised[i].Get();
  return statistics;
}

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
          .kept = queue.kept.Get(),
          .kicks = kicks,
          .kicks_on = queue.kicks_on.Get(),
          .kicks_off = queue.kicks_off.Get(),
          .batches = queue.batches.Get(),
          .interrupts = queue.signals.total(),
          .signals = Signals(queue.signals),
          .throttled = queue.throttle.waited.Get(),
          .throttled_ns = queue.throttle.waited_ns.Get(),
          .latencies = queue.latencies.Read()};
}

}  // namespace

void DeviceQueues::Add(const GuestDevices::Function& function) {
  if (function.queued != nullptr) devices_.emplace_back(function);
}

absl::Status DeviceQueues::HoldMoves(Deadline deadline) {
  for (auto entry = devices_.begin(); entry != devices_.end(); ++entry) {
    if (entry->BeginMove(deadline) != nullptr) continue;
    const std::string& name = entry->name;
    while (entry != devices_.begin()) (--entry)->EndMove();
    return absl::DeadlineExceededError(absl::StrFormat(
        "a queue of %s is still being moved, with requests in flight; wait longer, or try again",
        name));
  }
  return absl::OkStatus();
}

void DeviceQueues::LetMove() {
  for (Entry& entry : devices_) entry.EndMove();
}

absl::Status DeviceQueues::Replace(const std::vector<GuestDevices::Function>& functions) {
  std::vector<const GuestDevices::Function*> queued;
  for (const GuestDevices::Function& function : functions) {
    if (function.queued != nullptr) queued.push_back(&function);
  }
  const auto is_alike = [](const Entry& entry, const GuestDevices::Function* next) {
    return entry.name == next->name && entry.queues == next->queued->queue_count();
  };
  if (!std::ranges::equal(devices_, queued, is_alike)) {
    return absl::FailedPreconditionError(
        "a device was made anew with other queues than it had; DeviceConfig::create is to make the "
        "same each time");
  }
  auto next = queued.begin();
  for (Entry& entry : devices_) {
    QueuedDevice& device = *(*next)->queued;
    const MutexLock lock(entry.mutex);
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      device.Place(queue, entry.device->io_thread(queue));
      if (entry.traced != (device.trace(queue) != nullptr)) {
        (void)device.SetTrace(queue, entry.traced ? device.NewTrace(queue) : nullptr);
      }
      if (entry.device->signals(queue) != nullptr) device.RecordSignals(queue);
    }
    entry.device = &device;
    entry.pci = (*next++)->pci.get();
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceQueues::Entry*> DeviceQueues::Find(const std::string& name) {
  std::vector<std::string> names;
  for (Entry& entry : devices_) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  return absl::NotFoundError(
      absl::StrFormat("device '%s' is unknown, or has no queues; "
                      "did you mean '%s'?",
                      name, Nearest(name, names)));
}

QueuedDevice* DeviceQueues::Entry::BeginMove(Deadline deadline) {
  const MutexLock lock(mutex);
  while (moving) {
    if (moved.wait_until(mutex, deadline) == std::cv_status::timeout && moving) return nullptr;
  }
  moving = true;
  return device;
}

void DeviceQueues::Entry::EndMove() {
  const MutexLock lock(mutex);
  moving = false;
  moved.notify_all();  // whoever has a deadline may leave it to others
}

absl::Status DeviceQueues::Move(const std::string& device, uint16_t queue,
                                const std::string& io_thread, absl::Duration patience) {
  // Of one who may have given up when it is over.
  struct Outcome {
    IoThreads::Handle to;  // kept until the queue has arrived, and so needs it
    Event known;
    absl::Status status;
  };
  const Deadline deadline = DeadlineIn(patience);
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
  if (outcome->known.WaitUntil(deadline)) return outcome->status;
  return absl::DeadlineExceededError(
      absl::StrFormat("queue %d of %s has not moved within %s: requests of it are still in flight; "
                      "it moves to '%s' "
                      "once they are done",
                      queue, entry->name, absl::FormatDuration(patience), io_thread));
}

absl::Status DeviceQueues::RemoveIoThread(const std::string& name, absl::Duration patience) {
  // No device comes or goes meanwhile, and none is about to tell that it has left the thread.
  RINGSIDE_RETURN_IF_ERROR(HoldMoves(DeadlineIn(patience)));
  const absl::Cleanup let_move = [this] { LetMove(); };
  std::vector<QueuedDevice*> devices;
  for (const Entry& entry : devices_) {
    const MutexLock lock(entry.mutex);
    devices.push_back(entry.device);
  }
  const auto is_needed = [&](const IoThread& io_thread) {
    return std::ranges::any_of(devices, [&](QueuedDevice* each) { return each->Needs(io_thread); });
  };
  RINGSIDE_ASSIGN_OR_RETURN(const IoThreads::Handle removed, io_threads_.Remove(name, is_needed));
  for (QueuedDevice* device : devices) device->Forget(*removed);
  return absl::OkStatus();
}

absl::Status DeviceQueues::Change(
    const std::string& device, absl::Duration patience,
    absl::FunctionRef<absl::Status(QueuedDevice&, VirtioPci&)> change) {
  RINGSIDE_ASSIGN_OR_RETURN(Entry* const entry, Find(device));
  QueuedDevice* const held = entry->BeginMove(DeadlineIn(patience));
  if (held == nullptr) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "%s was not changed: after %s a queue of it is still being moved, or another call changes "
        "it; try again",
        entry->name, absl::FormatDuration(patience)));
  }
  const absl::Cleanup end = [entry] { entry->EndMove(); };
  VirtioPci* pci;
  {
    const MutexLock lock(entry->mutex);
    pci = entry->pci;
  }
  return change(*held, *pci);
}

void DeviceQueues::SetPath(const std::string& device, const std::string& path) {
  const absl::StatusOr<Entry*> entry = Find(device);
  if (!entry.ok()) return;
  const MutexLock lock((*entry)->mutex);
  (*entry)->path = path;
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

}  // namespace ringside
