// Calls a function on an I/O thread at a given time, whatever else the machine does meanwhile.
//
// Threads: Set from any, also from within the function; the end on any but the I/O thread.
// Ownership: the I/O thread outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "poll/io_thread.h"

namespace ringside {

class Alarm {
 public:
  static absl::StatusOr<std::unique_ptr<Alarm>> Create(IoThread& io_thread,
                                                       std::function<void()> rings);
  // The function is not being called, and will not be.
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // By CLOCK_MONOTONIC; instead of the time that was set before. One in the past rings at once.
  void Set(int64_t monotonic_ns);

 private:
  class Watch final : public FdWatch {
   public:
    Watch(int fd, Alarm& alarm) : FdWatch(fd, EPOLLIN), alarm_(alarm) {}
    void Ready() override { alarm_.Ring(); }

   private:
    Alarm& alarm_;
  };

  Alarm(IoThread& io_thread, UniqueFd timer, std::function<void()> rings);
  void Arm() { io_thread_.Arm(watch_); }
  void Ring();

  IoThread& io_thread_;
  const UniqueFd timer_;
  const std::function<void()> rings_;
  Watch watch_;
  TaskTo<Alarm, &Alarm::Arm> arm_{*this};
};

}  // namespace ringside
