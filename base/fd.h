// Eventfds with an owner; descriptors of other kinds have one by base/unique_fd.h.
//
// Threads: an EventFd's Signal and Clear may be called from any thread.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace ringside {

// A non-blocking eventfd: how a device raises an interrupt and how threads wake each other.
class EventFd {
 public:
  static absl::StatusOr<EventFd> Create();

  int fd() const { return fd_.get(); }
  void Signal() const;
  // Takes the counter back to zero and returns what it was.
  uint64_t Clear() const;
  // What it is, as the kernel shows it (proc_pid_fdinfo(5)): taking it would also take the wake-up
  // from whoever waits for it. 0 where there is no /proc.
  uint64_t count() const;

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ringside
