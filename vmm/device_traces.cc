// The traces of a machine's devices, while it runs: switched and copied on the I/O threads of their
// queues, so that these need no lock for them.
#include <algorithm>
#include <atomic>

#include "base/status.h"
#include "vmm/device_queues.h"

namespace ringside {
namespace {

absl::Status HeldUp(const std::string& device, absl::Duration patience, const char* then) {
  return absl::DeadlineExceededError(absl::StrFormat(
      "after %s a queue of %s is still being moved, or storage holds its I/O thread; %s",
      absl::FormatDuration(patience), device, then));
}

}  // namespace

// Of an entry after BeginMove: no queue goes to another thread meanwhile, and neither the device
// nor a thread of it goes. EndMove comes with the last one, whether anybody waits for that or not.
std::shared_ptr<const Event> DeviceQueues::BeginOnThreads(Entry& entry, QueuedDevice& device,
                                                          OfQueue of_queue) {
  struct Visits {
    Entry& entry;
    const OfQueue of_queue;
    std::atomic<size_t> left;
    Event done;

    void EndOne() {
      // Acquire and release: whoever is told sees what all visits have done.
      if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      entry.EndMove();
      done.Notify();
    }
  };
  // One more than there are queues, so that it is not over before all have begun.
  const std::shared_ptr<Visits> visits(new Visits{
      .entry = entry, .of_queue = std::move(of_queue), .left = entry.queues + size_t{1}});
  for (uint16_t queue = 0; queue < entry.queues; ++queue) {
    IoThread& here = device.io_thread(queue);
    here.Begin([visits, queue, &here, &device] {
      visits->of_queue(device, queue);
      // A turn later no hook refers to what was taken from the queue.
      here.Begin([visits] { visits->EndOne(); });
    });
  }
  visits->EndOne();
  return {visits, &visits->done};
}

absl::Status DeviceQueues::SetTrace(const std::string& device, bool on, absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_ASSIGN_OR_RETURN(Entry* const entry, Find(device));
  QueuedDevice* const queued = entry->BeginMove(deadline);
  if (queued == nullptr) return HeldUp(entry->name, patience, "its trace is as it was: try again");
  if (entry->Traces(on) == on) {
    entry->EndMove();
    return absl::OkStatus();
  }
  // Made here, as it takes a while, and unmade here unless nobody waits: what a queue has had takes
  // the place of what it gets.
  const auto traces = std::make_shared<std::vector<std::unique_ptr<LatencyTrace>>>(entry->queues);
  for (uint16_t queue = 0; on && queue < entry->queues; ++queue) {
    (*traces)[queue] = queued->NewTrace(queue);
  }
  const auto done = BeginOnThreads(*entry, *queued, [traces](QueuedDevice& of, uint16_t queue) {
    (*traces)[queue] = of.SetTrace(queue, std::move((*traces)[queue]));
  });
  if (done->WaitUntil(deadline)) return absl::OkStatus();
  return HeldUp(entry->name, patience, "its trace changes once that is over");
}

absl::StatusOr<std::vector<QueueLatencies>> DeviceQueues::Latencies(const std::string& device,
                                                                    absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  std::vector<QueueLatencies> latencies;
  for (Entry& entry : devices_) {
    if (!device.empty() && entry.name != device) continue;
    QueuedDevice* const queued = entry.BeginMove(deadline);
    if (queued == nullptr) return HeldUp(entry.name, patience, "ask again later");
    if (!entry.IsTraced()) {
      entry.EndMove();
      continue;
    }
    // Their memory is touched here, so that the I/O threads are held up by a copy and no more.
    const auto copies = std::make_shared<std::vector<LatencyTrace::Snapshot>>(entry.queues);
    const auto done = BeginOnThreads(entry, *queued, [copies](QueuedDevice& of, uint16_t queue) {
      of.trace(queue)->CopyTo((*copies)[queue]);
    });
    if (!done->WaitUntil(deadline)) return HeldUp(entry.name, patience, "ask again later");
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      latencies.push_back({.device = entry.name,
                           .path = entry.PathNow(),
                           .queue = queue,
                           .overwritten = (*copies)[queue].overwritten(),
                           .records = (*copies)[queue].Records()});
    }
  }
  return latencies;
}

absl::Status DeviceQueues::Explain(std::vector<IoThreadExplanation>& threads, Deadline deadline) {
  for (Entry& entry : devices_) {
    QueuedDevice* const queued = entry.BeginMove(DeadlineIn(absl::ZeroDuration()));
    if (queued == nullptr) continue;
    struct Answer {
      std::string io_thread;
      SignalExplanation signals;
    };
    const auto answers = std::make_shared<std::vector<Answer>>(entry.queues);
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      (*answers)[queue].io_thread = io_threads_.NameOf(queued->io_thread(queue));
    }
    const auto done = BeginOnThreads(entry, *queued, [answers](QueuedDevice& of, uint16_t queue) {
      (*answers)[queue].signals = of.ExplainSignals(queue);
    });
    if (!done->WaitUntil(deadline)) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "storage holds an I/O thread that serves %s; ask again later", entry.name));
    }
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      const Answer& answer = (*answers)[queue];
      const auto thread =
          std::ranges::find(threads, answer.io_thread, &IoThreadExplanation::io_thread);
      if (thread == threads.end()) continue;
      thread->queues.push_back({entry.name, queue, answer.signals});
    }
  }
  return absl::OkStatus();
}

void DeviceQueues::RecordSignals() {
  for (Entry& entry : devices_) {
    const MutexLock lock(entry.mutex);
    for (uint16_t queue = 0; queue < entry.queues; ++queue) entry.device->RecordSignals(queue);
  }
}

absl::StatusOr<std::vector<QueueSignals>> DeviceQueues::Signals(absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  std::vector<QueueSignals> signals;
  for (Entry& entry : devices_) {
    QueuedDevice* const queued = entry.BeginMove(deadline);
    if (queued == nullptr) return HeldUp(entry.name, patience, "ask again later");
    const auto copies = std::make_shared<std::vector<QueueSignals>>(entry.queues);
    const auto done = BeginOnThreads(entry, *queued, [copies](QueuedDevice& of, uint16_t queue) {
      const SignalRecords* const records = of.signals(queue);
      if (records == nullptr) return;
      (*copies)[queue].overwritten = records->overwritten();
      (*copies)[queue].records = records->InOrder();
    });
    if (!done->WaitUntil(deadline)) return HeldUp(entry.name, patience, "ask again later");
    for (uint16_t queue = 0; queue < entry.queues; ++queue) {
      (*copies)[queue].device = entry.name;
      (*copies)[queue].queue = queue;
      signals.push_back(std::move((*copies)[queue]));
    }
  }
  return signals;
}

}  // namespace ringside
