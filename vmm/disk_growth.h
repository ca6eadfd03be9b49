// Notices that block devices of the host behind a machine's disks have grown, and has the guest
// told. It costs nothing while no block device of the host changes.
//
// Threads: its work is on the I/O thread; the end on any but that. Ownership: what it is given
// outlives it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/log_limit.h"
#include "poll/io_thread.h"
#include "vmm/alarm.h"
#include "vmm/disks.h"
#include "vmm/host_device_watch.h"

namespace ringside {

class DiskGrowth {
 public:
  struct Parts {
    Disks& disks;
    DeviceQueues& queues;
    IoThread& io_thread;
    Logger log;
  };

  // Where the kernel cannot be listened to the log says so, and nothing is noticed.
  static std::unique_ptr<DiskGrowth> Create(const Parts& parts);

 private:
  static constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

  explicit DiskGrowth(const Parts& parts) : parts_(parts), log_(parts.log, 5) {}
  absl::Status Begin();
  void Changed(uint64_t device);
  void Look();

  const Parts parts_;
  LogLimit log_;                   // what changes on the host is not this machine's to limit
  std::set<std::string> to_look_;  // of which disks
  std::unique_ptr<Alarm> alarm_;
  std::unique_ptr<HostDeviceWatch> watch_;  // first to go
};

}  // namespace ringside
