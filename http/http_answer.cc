#include "http/http_answer.h"

namespace ringside {

HttpAnswer::~HttpAnswer() {
  Send(JsonError(500, "the request was dropped without an answer; this is a defect of Ringside"));
}

void HttpAnswer::Send(HttpResponse response) {
  if (const auto taker = std::exchange(taker_, nullptr)) {
    taker->TakeReply(ticket_, std::move(response));
  }
}

void HttpAnswer::Follow(const std::shared_ptr<HttpFeed>& feed, std::string content_type,
                        std::string_view beginning) {
  const auto taker = std::exchange(taker_, nullptr);
  if (taker == nullptr) return;
  // Attached here and not by the server, so that nothing is missed that is published meanwhile.
  std::shared_ptr<HttpFollower> follower =
      feed->Attach([taker, ticket = ticket_] { taker->WakeFollower(ticket); }, beginning);
  taker->TakeReply(ticket_, HttpFollowing{std::move(follower), std::move(content_type)});
}

}  // namespace ringside
