// The queues of a machine's devices, whatever devices these are: moved, counted and told of by the
// device's name.
//
// Threads: Add before the machine runs; all else from any, Latencies after its end.
// Ownership: what is added, and the I/O threads, outlive it, but for what is replaced.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

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
  // queues on the I/O threads where that one has them. When this returns nobody looks at that any
  // more. FailedPrecondition, and nothing has changed, if one has not as many queues.
  absl::Status Replace(const std::vector<GuestDevices::Function>& functions);

  // See Machine.
  absl::Status Move(const std::string& device, uint16_t queue, const std::string& io_thread,
                    absl::Duration patience);
  absl::Status RemoveIoThread(const std::string& name, absl::Duration patience);

  // Of queues that were made anew, since then.
  std::vector<QueueStatistics> Statistics(const std::string& device) const;
  std::vector<QueueLatencies> Latencies() const;

 private:
  struct Entry {
    explicit Entry(const GuestDevices::Function& function)
        : name(function.name),
          path(function.path),
          queues(function.queued->queue_count()),
          device(function.queued),
          pci(function.pci.get()) {}
    // The device, which stays until EndMove; null: others have moved queues of it all the time.
    QueuedDevice* BeginMove(Deadline deadline);
    void EndMove();

    const std::string name;
    const std::string path;
    const uint16_t queues;
    mutable Mutex mutex;
    QueuedDevice* device ABSL_GUARDED_BY(mutex);
    VirtioPci* pci ABSL_GUARDED_BY(mutex);
    bool moving ABSL_GUARDED_BY(mutex) = false;
    std::condition_variable_any moved;
  };

  absl::StatusOr<Entry*> Find(const std::string& name);

  IoThreads& io_threads_;
  std::deque<Entry> devices_;  // which stay where they are
};

}  // namespace ringside
