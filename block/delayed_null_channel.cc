#include "block/delayed_null_channel.h"

#include <cerrno>

#include "base/clock.h"

namespace ringside {

void DelayedNullChannel::Submit(BlockRequest& request) {
  io_thread_.HandsOverAtOnce();
  Op& op = ops_.Take();
  op.request = &request;
  op.due_ns = MonotonicNs() + latency_ns_;
  const bool is_first = in_flight_.empty();
  in_flight_.Push(op);
  if (is_first) io_thread_.Arm(timer_, op.due_ns);
}

// All are done in the next turn.
void DelayedNullChannel::Cancel() {
  cancelled_ = true;
  if (!in_flight_.empty()) io_thread_.Arm(timer_, 0);
}

void DelayedNullChannel::CompleteDue(int64_t now_ns) {
  // One look at the clock: what `done` submits is due later than that, so this ends. Of a channel
  // that is cancelled nobody asks anything more.
  while (AnyIsDue(now_ns)) {
    Op& op = *in_flight_.Pop();
    BlockRequest& request = *op.request;
    const int64_t due_ns = op.due_ns;
    ops_.Give(op);
    request.result = due_ns <= now_ns ? 0 : -ECANCELED;
    request.done(request);
  }
  if (!in_flight_.empty()) io_thread_.Arm(timer_, in_flight_.front()->due_ns);
}

}  // namespace ringside
