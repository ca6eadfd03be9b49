// Whom to answer: handed to a handler with each request, and answered now or later, from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "http/http_feed.h"
#include "http/http_message.h"

namespace ringside {

// An answer that goes on: status 200, then what the feed publishes.
struct HttpFollowing {
  std::shared_ptr<HttpFollower> follower;
  std::string content_type;
};
using HttpReply = std::variant<HttpResponse, HttpFollowing>;

// Where answers go. Threads: any; neither function waits. Both may be called after the server and
// the connection are gone, and then do nothing.
class HttpAnswerTaker {
 public:
  virtual ~HttpAnswerTaker() = default;
  // `ticket` is the request's.
  virtual void TakeReply(uint64_t ticket, HttpReply reply) = 0;
  // The follower of that request has something to take.
  virtual void WakeFollower(uint64_t ticket) = 0;
};

// Move-only. Threads: one at a time, any. One that is destroyed without an answer answers 500.
class HttpAnswer {
 public:
  HttpAnswer(std::shared_ptr<HttpAnswerTaker> taker, uint64_t ticket)
      : taker_(std::move(taker)), ticket_(ticket) {}
  HttpAnswer(HttpAnswer&&) noexcept = default;
  HttpAnswer& operator=(HttpAnswer&& other) noexcept {
    std::swap(taker_, other.taker_);
    std::swap(ticket_, other.ticket_);
    return *this;
  }
  ~HttpAnswer();

  // Once, either of them; after the first, and after a move from it, nothing happens.
  void Send(HttpResponse response);
  // Status 200 and, as it comes, what is published to the feed from now on. With too many
  // followers: 503 instead.
  // `beginning` comes before that: who gives one keeps others from publishing meanwhile.
  void Follow(const std::shared_ptr<HttpFeed>& feed, std::string content_type,
              std::string_view beginning = {});

 private:
  std::shared_ptr<HttpAnswerTaker> taker_;  // until it is answered
  uint64_t ticket_;
};

}  // namespace ringside
