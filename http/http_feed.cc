#include "http/http_feed.h"

#include <utility>

namespace ringside {

bool HttpFollower::Add(std::string_view text) {
  {
    const MutexLock lock(mutex_);
    if (is_ended_ || is_behind_) return false;
    if (text.size() > most_waiting_bytes_ - waiting_.size()) {
      is_behind_ = true;
      is_woken_ = false;  // whoever has not come for the text comes for this
      waiting_ = {};
    } else {
      waiting_.append(text);
    }
    if (std::exchange(is_woken_, true)) return true;
  }
  wake_();
  return true;
}

void HttpFollower::End() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(is_ended_, true) || std::exchange(is_woken_, true)) return;
  }
  wake_();
}

HttpFollower::Taken HttpFollower::Take() {
  const MutexLock lock(mutex_);
  is_woken_ = false;
  return {.text = std::exchange(waiting_, {}), .is_ended = is_ended_, .is_behind = is_behind_};
}

bool HttpFollower::is_behind() const {
  const MutexLock lock(mutex_);
  return is_behind_;
}

void HttpFeed::Publish(std::string_view text) {
  if (text.empty()) return;
  const MutexLock lock(mutex_);
  std::erase_if(followers_, [text](const std::weak_ptr<HttpFollower>& each) {
    const std::shared_ptr<HttpFollower> follower = each.lock();
    return follower == nullptr || !follower->Add(text);
  });
}

void HttpFeed::End() {
  const MutexLock lock(mutex_);
  is_ended_ = true;
  for (const std::weak_ptr<HttpFollower>& each : followers_) {
    if (const std::shared_ptr<HttpFollower> follower = each.lock()) follower->End();
  }
  followers_.clear();
}

bool HttpFeed::HasFollowers() {
  const MutexLock lock(mutex_);
  std::erase_if(followers_, [](const auto& each) { return each.expired(); });
  return !followers_.empty();
}

std::shared_ptr<HttpFollower> HttpFeed::Attach(std::function<void()> wake,
                                               std::string_view beginning) {
  auto follower = std::make_shared<HttpFollower>(most_waiting_bytes_, std::move(wake));
  const MutexLock lock(mutex_);
  if (!beginning.empty()) follower->Add(beginning);
  std::erase_if(followers_, [](const auto& each) { return each.expired(); });
  if (is_ended_) {
    follower->End();
  } else {
    followers_.push_back(follower);
  }
  return follower;
}

}  // namespace ringside
