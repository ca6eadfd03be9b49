// type=null with a latency: every request succeeds so long after it was submitted, whatever else is
// in flight. To the I/O thread this is hardware: a look tells without a system call what is done,
// and one that sleeps is woken.
//
// Threads: made, used and destroyed on its I/O thread.
// Spec: timerfd_create(2).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"

namespace ringside {

class DelayedNullChannel final : public BlockChannel {
 public:
  static absl::StatusOr<std::unique_ptr<DelayedNullChannel>> Create(IoThread& io_thread,
                                                                    int64_t latency_ns);
  ~DelayedNullChannel() override;

  void Submit(BlockRequest& request) override;
  void Cancel() override;

 private:
  struct Op {
    BlockRequest* request = nullptr;
    int64_t due_ns = 0;
    Op* next = nullptr;
    Op* next_free = nullptr;
  };

  // The timer is its wake_fd, and nobody reads that. Each expiry wakes the sleeper all the same:
  // the kernel queues an event at the moment of expiry, edge-triggered epoll and io_uring's
  // multishot poll then ask whether the timer is readable, and it is until it is set anew, which is
  // this thread's to do. Setting it anew also takes away what an earlier expiry left, so an old one
  // is not mistaken for a new one.
  class Completions final : public Source {
   public:
    Completions(DelayedNullChannel& channel, int timer_fd) : Source(timer_fd), channel_(channel) {}
    bool HasWork() override { return channel_.AnyIsDue(MonotonicNs()); }
    void Run() override { channel_.CompleteDue(); }
    void EnableNotify() override { channel_.Notify(true); }
    // The timer goes on: to stop it is a system call, one wake-up too many costs no more.
    void DisableNotify() override { channel_.Notify(false); }

   private:
    DelayedNullChannel& channel_;
  };

  DelayedNullChannel(IoThread& io_thread, int64_t latency_ns, UniqueFd timer)
      : io_thread_(io_thread),
        latency_ns_(latency_ns),
        timer_(std::move(timer)),
        completions_(*this, timer_.get()) {}

  bool AnyIsDue(int64_t now_ns) const {
    return !in_flight_.empty() && (cancelled_ || in_flight_.front()->due_ns <= now_ns);
  }
  void CompleteDue();
  void Notify(bool on);
  void SetTimer();

  IoThread& io_thread_;
  const int64_t latency_ns_;
  const UniqueFd timer_;
  SlabPool<Op> ops_;
  Fifo<Op> in_flight_;  // the first is due first, as all take the same time
  bool cancelled_ = false;
  bool notify_on_ = true;  // then the timer is set for the first in flight
  int64_t timer_ns_ = 0;   // what it was set for last
  Completions completions_;
};

}  // namespace ringside
