#include "poll/waiter.h"

#include <cerrno>

#include "base/status.h"

namespace ringside {
namespace {

// In epoll's data: the address of a listener, and this; else that of an FdWatch.
constexpr uint64_t kListenerTag = 1;

}  // namespace

absl::StatusOr<UniqueFd> Waiter::CreateEpoll() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot create an epoll", "raise 'ulimit -n'");
  return epoll;
}

absl::Status Waiter::AddToEpoll(int eventfd, EventfdListener& listener) {
  // Edge-triggered: every write is an event, though nobody reads.
  epoll_event event{.events = EPOLLIN | EPOLLET,
                    .data = {.u64 = reinterpret_cast<uint64_t>(&listener) | kListenerTag}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, eventfd, &event) == 0) return absl::OkStatus();
  return ErrnoError(errno, "cannot watch an eventfd");
}

int Waiter::WaitForEpoll(epoll_event& event, int64_t timeout_ns) const {
  if (timeout_ns == 0) return epoll_wait(epoll_.get(), &event, 1, 0);
  if (timeout_ns == kForever) return epoll_wait(epoll_.get(), &event, 1, -1);
  // Where it is forbidden, as in sandboxes that do not know it, a doze is no sleep at all.
  const timespec timeout = {.tv_sec = timeout_ns / 1'000'000'000,
                            .tv_nsec = timeout_ns % 1'000'000'000};
  return epoll_pwait2(epoll_.get(), &event, 1, &timeout, nullptr);
}

bool Waiter::RunOneWatch(int64_t timeout_ns) {
  // One event per call: a watch may disarm and destroy another one whose event would be next.
  epoll_event event;
  if (WaitForEpoll(event, timeout_ns) <= 0) return false;
  if ((event.data.u64 & kListenerTag) != 0) {
    reinterpret_cast<EventfdListener*>(event.data.u64 & ~kListenerTag)->Written();
  } else {
    static_cast<FdWatch*>(event.data.ptr)->Ready();
  }
  return true;
}

bool Waiter::Arm(FdWatch& watch) {
  if (watch.in_always_ready_) return true;
  epoll_event event{.events = watch.events_ | EPOLLONESHOT, .data = {.ptr = &watch}};
  const int operation = watch.added_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), operation, watch.fd_, &event) == 0) {
    watch.added_ = true;
    return true;
  }
  if (errno != EPERM) return false;
  // The file cannot be polled because it never blocks.
  FdWatch** link = &always_ready_;
  while (*link != nullptr) link = &(*link)->next_always_ready_;
  *link = &watch;
  watch.next_always_ready_ = nullptr;
  watch.in_always_ready_ = true;
  return true;
}

void Waiter::Disarm(FdWatch& watch) {
  if (watch.added_) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch.fd_, nullptr);
  watch.added_ = false;
  for (FdWatch** link = &always_ready_; *link != nullptr; link = &(*link)->next_always_ready_) {
    if (*link != &watch) continue;
    *link = watch.next_always_ready_;
    watch.in_always_ready_ = false;
    return;
  }
}

void Waiter::RunFirstAlwaysReady() {
  FdWatch* watch = always_ready_;
  always_ready_ = watch->next_always_ready_;
  watch->in_always_ready_ = false;
  watch->Ready();
}

}  // namespace ringside
