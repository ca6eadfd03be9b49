#include "block/delayed_null_channel.h"

#include <cerrno>
#include <sys/timerfd.h>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<DelayedNullChannel>> DelayedNullChannel::Create(IoThread& io_thread,
                                                                               int64_t latency_ns) {
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return ErrnoError(errno, "cannot create a timer", "raise 'ulimit -n'");
  std::unique_ptr<DelayedNullChannel> channel(
      new DelayedNullChannel(io_thread, latency_ns, std::move(timer)));
  RINGSIDE_RETURN_IF_ERROR(io_thread.Attach(channel->completions_, Phase::kComplete));
  return channel;
}

DelayedNullChannel::~DelayedNullChannel() {
  io_thread_.Detach(completions_);  // does nothing if it never was attached
}

void DelayedNullChannel::Submit(BlockRequest& request) {
  io_thread_.HandsOverAtOnce();
  Op& op = ops_.Take();
  op.request = &request;
  op.due_ns = MonotonicNs() + latency_ns_;
  const bool is_first = in_flight_.empty();
  in_flight_.Push(op);
  if (is_first && notify_on_) SetTimer();
}

// All are done with the next look.
void DelayedNullChannel::Cancel() {
  cancelled_ = true;
  completions_.Written();
}

void DelayedNullChannel::CompleteDue() {
  // One look at the clock: what `done` submits is due later than that, so this ends. Of a channel
  // that is cancelled nobody asks anything more.
  const int64_t now_ns = MonotonicNs();
  while (AnyIsDue(now_ns)) {
    Op& op = *in_flight_.Pop();
    BlockRequest& request = *op.request;
    const int64_t due_ns = op.due_ns;
    ops_.Give(op);
    request.result = due_ns <= now_ns ? 0 : -ECANCELED;
    request.done(request);
  }
}

void DelayedNullChannel::Notify(bool on) {
  notify_on_ = on;
  if (on && !in_flight_.empty()) SetTimer();
}

void DelayedNullChannel::SetTimer() {
  const int64_t due_ns = in_flight_.front()->due_ns;
  // Either still to expire, or AnyIsDue finds it in the look that follows.
  if (due_ns == timer_ns_) return;
  timer_ns_ = due_ns;
  const itimerspec at = {
      .it_value = {.tv_sec = due_ns / 1'000'000'000, .tv_nsec = due_ns % 1'000'000'000}};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace ringside
