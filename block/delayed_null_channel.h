// type=null with a latency: every request succeeds so long after it was submitted, whatever else is
// in flight. To the I/O thread this is hardware: a look tells without a system call what is done.
//
// Threads: made, used and destroyed on its I/O thread.
#pragma once

#include <cstdint>

#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"

namespace ringside {

class DelayedNullChannel final : public BlockChannel {
 public:
  DelayedNullChannel(IoThread& io_thread, int64_t latency_ns)
      : io_thread_(io_thread), latency_ns_(latency_ns) {}
  ~DelayedNullChannel() override { io_thread_.Disarm(timer_); }

  void Submit(BlockRequest& request) override;
  void Cancel() override;

 private:
  struct Op {
    BlockRequest* request = nullptr;
    int64_t due_ns = 0;
    Op* next = nullptr;
    Op* next_free = nullptr;
  };

  bool AnyIsDue(int64_t now_ns) const {
    return !in_flight_.empty() && (cancelled_ || in_flight_.front()->due_ns <= now_ns);
  }
  void CompleteDue(int64_t now_ns);

  IoThread& io_thread_;
  const int64_t latency_ns_;
  SlabPool<Op> ops_;
  Fifo<Op> in_flight_;  // the first is due first, as all take the same time
  bool cancelled_ = false;
  // Armed for the first in flight.
  TimerTo<DelayedNullChannel, &DelayedNullChannel::CompleteDue> timer_{*this};
};

}  // namespace ringside
