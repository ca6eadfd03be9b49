// File descriptors with an owner.
//
// Threads: a UniqueFd belongs to one thread at a time; an EventFd's Signal and Clear may be called
// from any thread.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace ringside {

// Owns a descriptor and closes it. -1 means none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

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
