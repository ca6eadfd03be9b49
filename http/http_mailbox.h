// What other threads have for a server's thread: answers, and that there is something to follow.
//
// Threads: any. Bounded by its senders: a request has one answer, and a follower wakes once until
// it has been looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/fd.h"
#include "base/sync.h"
#include "http/http_answer.h"

namespace ringside {

class HttpMailbox final : public HttpAnswerTaker {
 public:
  struct FollowerIsReady {};
  struct Mail {
    uint64_t ticket;
    std::variant<HttpResponse, HttpFollowing, FollowerIsReady> content;
  };

  static absl::StatusOr<std::shared_ptr<HttpMailbox>> Create();

  void TakeReply(uint64_t ticket, HttpReply reply) override;
  void WakeFollower(uint64_t ticket) override;

  // For the server: readable when there is mail, or when Stop has been called.
  int fd() const { return wake_.fd(); }
  std::vector<Mail> Take();
  void Stop();
  bool is_stopped();
  // Whatever comes from now on is dropped.
  void Close();

 private:
  explicit HttpMailbox(EventFd wake) : wake_(std::move(wake)) {}
  void Post(Mail mail);

  const EventFd wake_;
  Mutex mutex_;
  std::vector<Mail> mail_ ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
