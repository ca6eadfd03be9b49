#include "vmm/alarm.h"

#include <algorithm>
#include <cerrno>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<Alarm>> Alarm::Create(IoThread& io_thread,
                                                     std::function<void()> rings) {
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer.valid()) return ErrnoError(errno, "cannot make a timer");
  return std::unique_ptr<Alarm>(new Alarm(io_thread, std::move(timer), std::move(rings)));
}

Alarm::Alarm(IoThread& io_thread, UniqueFd timer, std::function<void()> rings)
    : io_thread_(io_thread),
      timer_(std::move(timer)),
      rings_(std::move(rings)),
      watch_(timer_.get(), *this) {
  io_thread_.Post(arm_);
}

Alarm::~Alarm() {
  io_thread_.RunAndWait([this] { io_thread_.Disarm(watch_); });
}

void Alarm::Set(int64_t monotonic_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  monotonic_ns = std::max<int64_t>(monotonic_ns, 1);  // 0 would disarm it
  const itimerspec when = {.it_interval = {},
                           .it_value = {monotonic_ns / kSecond, monotonic_ns % kSecond}};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// A time that was set anew after the descriptor became readable has nothing to be read.
void Alarm::Ring() {
  uint64_t expirations = 0;
  const bool rang = read(timer_.get(), &expirations, sizeof expirations) == sizeof expirations;
  Arm();
  if (rang) rings_();
}

}  // namespace ringside
