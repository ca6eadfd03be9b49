#include "http/http_mailbox.h"

#include <utility>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::shared_ptr<HttpMailbox>> HttpMailbox::Create() {
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::shared_ptr<HttpMailbox>(new HttpMailbox(std::move(wake)));
}

void HttpMailbox::TakeReply(uint64_t ticket, HttpReply reply) {
  if (auto* response = std::get_if<HttpResponse>(&reply)) {
    Post({ticket, std::move(*response)});
  } else {
    Post({ticket, std::get<HttpFollowing>(std::move(reply))});
  }
}

void HttpMailbox::WakeFollower(uint64_t ticket) {
  Post({ticket, FollowerIsReady()});
}

void HttpMailbox::Post(Mail mail) {
  {
    const MutexLock lock(mutex_);
    if (is_closed_) return;
    mail_.push_back(std::move(mail));
    if (mail_.size() > 1) return;  // it has been signalled
  }
  wake_.Signal();
}

std::vector<HttpMailbox::Mail> HttpMailbox::Take() {
  wake_.Clear();  // first: mail that comes now signals anew, or is taken now
  const MutexLock lock(mutex_);
  return std::exchange(mail_, {});
}

void HttpMailbox::Stop() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  wake_.Signal();
}

bool HttpMailbox::is_stopped() {
  const MutexLock lock(mutex_);
  return is_stopped_;
}

void HttpMailbox::Close() {
  std::vector<Mail> dropped;  // after the lock: followers hold the mailbox
  const MutexLock lock(mutex_);
  is_closed_ = true;
  dropped.swap(mail_);
}

}  // namespace ringside
