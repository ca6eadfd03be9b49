// The queues of a machine's devices, whatever devices these are: moved, counted and told of by the
// device's name.
//
// Threads: Add before the machine runs; all else from any, Latencies after its end.
// Ownership: what is added, and the I/O threads, outlive it.
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
#include "vmm/statistics.h"

namespace ringside {

class DeviceQueues {
 public:
  explicit DeviceQueues(IoThreads& io_threads) : io_threads_(io_threads) {}

  // `path`: what is behind it, for Latencies.
  void Add(std::string name, std::string path, QueuedDevice& device, VirtioPci& pci);

  // See Machine.
  absl::Status Move(const std::string& device, uint16_t queue, const std::string& io_thread,
                    absl::Duration patience);
  absl::Status RemoveIoThread(const std::string& name);

  std::vector<QueueStatistics> Statistics(const std::string& device) const;
  std::vector<QueueLatencies> Latencies() const;

 private:
  struct Entry {
    // Whether it is the caller's turn to move a queue of this device; EndMove is to follow.
    bool BeginMove(absl::Time deadline);
    void EndMove();

    std::string name;
    std::string path;
    QueuedDevice& device;
    VirtioPci& pci;
    Mutex mutex;
    bool moving ABSL_GUARDED_BY(mutex) = false;
    std::condition_variable_any moved;
  };

  absl::StatusOr<Entry*> Find(const std::string& name);

  IoThreads& io_threads_;
  std::deque<Entry> devices_;  // which stay where they are
};

}  // namespace ringside
