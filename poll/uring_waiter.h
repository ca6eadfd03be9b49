// Waits in an io_uring: for requests, for eventfds, and for the epoll that has all descriptors.
//
// Threads and ownership: as Waiter.
#pragma once

#include <memory>
#include <utility>

#include "base/status.h"
#include "poll/waiter.h"

namespace ringside {

class UringWaiter final : public Waiter, private EventfdListener {
 public:
  static absl::StatusOr<std::unique_ptr<Waiter>> Create(UringEntries entries, unsigned files) {
    RINGSIDE_ASSIGN_OR_RETURN(UniqueFd epoll, CreateEpoll());
    RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<Uring> uring, Uring::Create(entries, files));
    return std::unique_ptr<Waiter>(new UringWaiter(std::move(epoll), std::move(uring)));
  }

  bool Reap() override { return uring_->Reap(); }
  bool HasCompletions() const override { return uring_->HasCompletions(); }
  bool Enter(int64_t sleep_ns) override {
    uring_->Enter(sleep_ns);
    if (!descriptor_ready_) return false;
    // The ring told of the first event only: there may be more.
    descriptor_ready_ = RunOneWatch(0);
    return descriptor_ready_;
  }
  absl::Status Watch(int eventfd, EventfdListener& listener, Watching watching) override {
    uring_->Watch(eventfd, &listener, watching);
    return absl::OkStatus();
  }
  void Want(int eventfd, bool wanted) override { uring_->Want(eventfd, wanted); }
  void WantNow() override { uring_->WantNow(); }
  void Unwatch(int eventfd) override { uring_->Unwatch(eventfd); }
  Uring* uring() override { return uring_.get(); }

 private:
  UringWaiter(UniqueFd epoll, std::unique_ptr<Uring> uring)
      : Waiter(std::move(epoll)), uring_(std::move(uring)) {
    uring_->Watch(this->epoll().get(), this);
  }
  void Written() override { descriptor_ready_ = true; }

  const std::unique_ptr<Uring> uring_;
};

}  // namespace ringside
