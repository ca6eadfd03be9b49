// The queues of a machine's devices, whatever devices these are: moved, counted and told of by the
// device's name.
//
// Threads: Add before the machine runs; all else from any.
// Ownership: what is added, and the I/O threads, outlive it, but for what is replaced.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "devices/queued_device.h"
#include "devices/virtio_pci.h"
#include "poll/io_threads.h"
#include "ringside/statistics.h"
#include "vmm/guest_devices.h"

namespace ringside {

class DeviceQueues {
 public:
  explicit DeviceQueues(IoThreads& io_threads) : io_threads_(io_threads) {}

  // Only one that is a QueuedDevice.
  void Add(const GuestDevices::Function& function);
  // Waits until no queue moves, and lets none move, and no I/O thread go, until LetMove.
  // DeadlineExceeded: one is still being moved; nothing is held then.
  absl::Status HoldMoves(Deadline deadline);
  void LetMove();
  // While moves are held: each takes the place of the one that was added in its order, with its
  // queues on the I/O threads where that one has them, and traced if they were. When this returns
  // nobody looks at that any more. FailedPrecondition, and nothing has changed, if one has not as
  // many queues.
  absl::Status Replace(const std::vector<GuestDevices::Function>& functions);

  // See Machine.
  absl::Status Move(const std::string& device, uint16_t queue, const std::string& io_thread,
                    absl::Duration patience);
  absl::Status RemoveIoThread(const std::string& name, absl::Duration patience);

  // Calls `change` with the device, which stays meanwhile, and no queue of which moves. One such
  // call of a device at a time; DeadlineExceeded: another call has it, or a move.
  absl::Status Change(const std::string& device, absl::Duration patience,
                      absl::FunctionRef<absl::Status(QueuedDevice&, VirtioPci&)> change);
  // What is behind the device from now on, by name.
  void SetPath(const std::string& device, const std::string& path);

  // Of queues that were made anew, since then.
  std::vector<QueueStatistics> Statistics(const std::string& device) const;
  absl::Status SetTrace(const std::string& device, bool on, absl::Duration patience);
  absl::StatusOr<std::vector<QueueLatencies>> Latencies(const std::string& device,
                                                        absl::Duration patience);
  // Adds each queue to the explanation of the thread that serves it. Waits for a turn of each;
  // DeadlineExceeded: one is held. Waits for no move: the device is left out then.
  absl::Status Explain(std::vector<IoThreadExplanation>& threads, Deadline deadline);
  // Before the machine runs: has all queues record what Signals copies.
  void RecordSignals();
  // Waits as Latencies.
  absl::StatusOr<std::vector<QueueSignals>> Signals(absl::Duration patience);

 private:
  struct Entry {
    explicit Entry(const GuestDevices::Function& function)
        : name(function.name),
          queues(function.queued->queue_count()),
          path(function.path),
          device(function.queued),
          pci(function.pci.get()),
          traced(queues > 0 && device->trace(0) != nullptr) {}
    // The device, which stays until EndMove; null: others have moved queues of it all the time.
    QueuedDevice* BeginMove(Deadline deadline);
    void EndMove();
    std::string PathNow() const {
      const MutexLock lock(mutex);
      return path;
    }
    bool IsTraced() const {
      const MutexLock lock(mutex);
      return traced;
    }
    // Returns whether it was traced before.
    bool Traces(bool on) {
      const MutexLock lock(mutex);
      return std::exchange(traced, on);
    }

    const std::string name;
    const uint16_t queues;
    mutable Mutex mutex;
    std::string path ABSL_GUARDED_BY(mutex);
    QueuedDevice* device ABSL_GUARDED_BY(mutex);
    VirtioPci* pci ABSL_GUARDED_BY(mutex);
    bool traced ABSL_GUARDED_BY(mutex);
    bool moving ABSL_GUARDED_BY(mutex) = false;
    std::condition_variable_any moved;
  };

  // What is done on each queue's I/O thread, between its turns.
  using OfQueue = std::function<void(QueuedDevice& device, uint16_t queue)>;

  absl::StatusOr<Entry*> Find(const std::string& name);
  // device_traces.cc
  static std::shared_ptr<const Event> BeginOnThreads(Entry& entry, QueuedDevice& device,
                                                     OfQueue of_queue);

  IoThreads& io_threads_;
  std::deque<Entry> devices_;  // which stay where they are
};

}  // namespace ringside
