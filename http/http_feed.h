// Text that is published to whoever follows it, such as events or a log.
//
// Threads: all of HttpFeed and HttpFollower may be called from any.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace ringside {

// One follower's share of a feed: what waits for it, which is bounded.
class HttpFollower {
 public:
  // `wake` is called when there is something to take, once until it has been taken; it must not
  // wait.
  HttpFollower(size_t most_waiting_bytes, std::function<void()> wake)
      : most_waiting_bytes_(most_waiting_bytes), wake_(std::move(wake)) {}

  // False: it takes no more.
  bool Add(std::string_view text);
  void End();

  struct Taken {
    std::string text;
    bool is_ended = false;   // there will be no more
    bool is_behind = false;  // it has not kept up: text is missing, and it should be closed
  };
  Taken Take();
  bool is_behind() const;

 private:
  const size_t most_waiting_bytes_;
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_behind_ ABSL_GUARDED_BY(mutex_) = false;
};

class HttpFeed {
 public:
  // How much may wait for each follower. A follower for which more would wait is closed, so a text
  // that is longer than this closes all.
  explicit HttpFeed(size_t most_waiting_bytes) : most_waiting_bytes_(most_waiting_bytes) {}
  ~HttpFeed() { End(); }
  HttpFeed(const HttpFeed&) = delete;
  HttpFeed& operator=(const HttpFeed&) = delete;

  // Never waits for a follower.
  void Publish(std::string_view text);
  // No more comes: followers, also those that attach from now on, get what waits and then the end.
  void End();
  bool HasFollowers();

  // The feed keeps no follower alive: one that is let go of follows no more.
  // What is published comes behind `beginning`.
  std::shared_ptr<HttpFollower> Attach(std::function<void()> wake, std::string_view beginning = {});

 private:
  const size_t most_waiting_bytes_;
  Mutex mutex_;
  std::vector<std::weak_ptr<HttpFollower>> followers_ ABSL_GUARDED_BY(mutex_);
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
