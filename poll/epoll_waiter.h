// Waits in epoll, where io_uring is forbidden. It has no requests and no completions.
//
// Threads and ownership: as Waiter.
#pragma once

#include <memory>
#include <utility>

#include "base/status.h"
#include "poll/waiter.h"

namespace ringside {

class EpollWaiter final : public Waiter {
 public:
  // `each_turn`: looks at some descriptors in each turn, rather than at one in many: where the
  // thread is kept busy by others than those who signal.
  static absl::StatusOr<std::unique_ptr<Waiter>> Create(bool each_turn) {
    RINGSIDE_ASSIGN_OR_RETURN(UniqueFd epoll, CreateEpoll());
    return std::unique_ptr<Waiter>(new EpollWaiter(std::move(epoll), each_turn));
  }

  bool Reap() override { return false; }
  bool HasCompletions() const override { return false; }
  bool Enter(int64_t sleep_ns) override {
    if (sleep_ns != 0) return RunOneWatch(sleep_ns);
    return each_turn_ ? RunSomeWatches() : LookAtDescriptors();
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
  EpollWaiter(UniqueFd epoll, bool each_turn) : Waiter(std::move(epoll)), each_turn_(each_turn) {}
  bool RunSomeWatches() {
    constexpr int kMost = 8;
    int ran = 0;
    while (ran < kMost && RunOneWatch(0)) ++ran;
    return ran > 0;
  }

  const bool each_turn_;
  unsigned looks_ = 0;
};

}  // namespace ringside
