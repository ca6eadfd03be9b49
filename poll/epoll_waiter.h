// Waits in epoll, where io_uring is forbidden. It has no requests and no completions.
//
// Threads and ownership: as Waiter.
#pragma once

#include <memory>

#include "base/status.h"
#include "poll/waiter.h"

namespace ringside {

class EpollWaiter final : public Waiter {
 public:
  static absl::StatusOr<std::unique_ptr<Waiter>> Create() {
    RINGSIDE_ASSIGN_OR_RETURN(UniqueFd epoll, CreateEpoll());
    return std::unique_ptr<Waiter>(new EpollWaiter(std::move(epoll)));
  }

  bool Reap() override { return false; }
  bool HasCompletions() const override { return false; }
  bool Enter(int64_t sleep_ns) override {
    return sleep_ns == 0 ? LookAtDescriptors() : RunOneWatch(sleep_ns);
  }
  // Sources, tasks and hooks are found without the system call.
  bool LookAtDescriptors() override {
    constexpr unsigned kLooksPerCall = 64;
    return ++looks_ % kLooksPerCall == 0 && RunOneWatch(0);
  }
  absl::Status Watch(int eventfd, EventfdListener& listener, Watching /*watching*/) override {
    return AddToEpoll(eventfd, listener);
  }
  void Unwatch(int eventfd) override { epoll_ctl(epoll().get(), EPOLL_CTL_DEL, eventfd, nullptr); }

 private:
  using Waiter::Waiter;

  unsigned looks_ = 0;
};

}  // namespace ringside
