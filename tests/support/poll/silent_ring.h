// A ring into which nobody ever puts anything: an I/O thread that has one has something to look at,
// as one that serves a queue has.
//
// Threads: made and unmade on any but the I/O thread, which outlives it.
#pragma once

#include <cstdlib>

#include "base/fd.h"
#include "poll/io_thread.h"

namespace ringside::testing {

class SilentRing {
 public:
  explicit SilentRing(IoThread& io_thread) : io_thread_(io_thread) {
    io_thread_.RunAndWait([this] {
      if (!io_thread_.Attach(ring_, Phase::kTake).ok()) std::abort();
    });
  }
  ~SilentRing() {
    io_thread_.RunAndWait([this] { io_thread_.Detach(ring_); });
  }
  SilentRing(const SilentRing&) = delete;
  SilentRing& operator=(const SilentRing&) = delete;

 private:
  class Ring final : public Source {
   public:
    using Source::Source;
    bool HasWork() override { return false; }
    void Run() override {}
    void EnableNotify() override {}
    void DisableNotify() override {}
  };

  IoThread& io_thread_;
  const EventFd wake_ = *EventFd::Create();
  Ring ring_{wake_.fd()};
};

}  // namespace ringside::testing
