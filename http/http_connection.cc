#include "http/http_connection.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "http/http_writer.h"

namespace ringside {
namespace {

// What a client takes of its response gains it time if it is at least this much.
constexpr size_t kLeastTaken = 16 << 10;

int64_t After(int64_t now_ns, absl::Duration limit) {
  const int64_t limit_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(limit));
  return limit_ns > HttpConnection::kNever - now_ns ? HttpConnection::kNever : now_ns + limit_ns;
}

}  // namespace

HttpConnection::HttpConnection(UniqueFd fd, const HttpLimits& limits, int64_t now_ns)
    : limits_(limits),
      fd_(std::move(fd)),
      deadline_ns_(After(now_ns, limits.request)),
      reader_(std::make_unique<HttpRequestReader>(limits.message)) {}

uint32_t HttpConnection::wanted_events() const {
  const uint32_t out = output_.empty() ? 0U : EPOLLOUT;
  switch (state_) {
    case State::kIdle:
    case State::kReading:
      return EPOLLIN | out;
    case State::kAwaiting:  // no more is read than one request and what came with it
    case State::kAnswering:
      return out;
    case State::kFollowing:
      return (input_ended_ ? 0U : EPOLLIN) | out;
    case State::kLingering:
      return EPOLLIN;
    case State::kAbandoned:
    case State::kOver:
      break;
  }
  return 0;
}

void HttpConnection::OnEvents(uint32_t events, std::span<char> buffer, int64_t now_ns) {
  // EPOLLHUP is a close; a client that has only ended its own half does not show it.
  const bool is_gone = (events & (EPOLLHUP | EPOLLERR)) != 0;
  const bool is_reading = state_ == State::kIdle || state_ == State::kReading;
  if (is_gone && !is_reading) return OnGone();
  if ((events & EPOLLIN) != 0 || is_gone) Read(buffer, now_ns);
  if ((events & EPOLLOUT) == 0 || !fd_.valid()) return;
  Flush(now_ns);
  if (state_ == State::kFollowing && output_.empty()) TakeFromFollower(now_ns);
}

void HttpConnection::OnTime(int64_t now_ns) {
  if (now_ns < deadline_ns_) return;
  if (state_ == State::kReading) {
    late_ = {408, absl::StrFormat("the request has not come whole within %s; send it faster",
                                  absl::FormatDuration(limits_.request))};
    deadline_ns_ = kNever;
    return;
  }
  Close(State::kOver);
}

void HttpConnection::Read(std::span<char> buffer, int64_t now_ns) {
  const ssize_t got = recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) OnGone();
    return;
  }
  if (got == 0) {
    input_ended_ = true;
    if (state_ == State::kReading) return reader_->End();
    if (state_ != State::kFollowing) Close(State::kOver);
    return;
  }
  const std::string_view text(buffer.data(), static_cast<size_t>(got));
  if (state_ == State::kIdle || state_ == State::kReading) return FeedReader(text, now_ns);
  ignored_ += text.size();
  const size_t most = state_ == State::kFollowing ? limits_.message.header
                                                  : limits_.message.header + limits_.message.body;
  if (ignored_ > most) OnGone();
}

void HttpConnection::FeedReader(std::string_view text, int64_t now_ns) {
  if (state_ == State::kIdle) {
    if (idle_since_ns_ != kNever) deadline_ns_ = After(now_ns, limits_.request);
    state_ = State::kReading;
  }
  const size_t taken = reader_->Feed(text);
  input_ = text.substr(taken);
  if (reader_->is_complete() || reader_->fault()) return;
  if (input_ended_) return reader_->End();
  if (reader_->has_head() && reader_->framing().expects_continue &&
      !std::exchange(continued_, true)) {
    output_ += kContinue;
    Flush(now_ns);
  }
}

std::optional<HttpRequest> HttpConnection::NextRequest(int64_t now_ns) {
  if (state_ == State::kIdle && !input_.empty()) FeedReader(std::exchange(input_, {}), now_ns);
  if (state_ != State::kReading || !reader_->is_complete() || late_) return std::nullopt;
  keeps_alive_ = reader_->framing().keeps_alive;
  to_head_ = reader_->is_head();
  is_chunked_ = reader_->minor_version() > 0;
  HttpRequest request = reader_->Take();
  reader_ = std::make_unique<HttpRequestReader>(limits_.message);
  continued_ = false;
  state_ = State::kAwaiting;
  deadline_ns_ = kNever;
  return request;
}

const HttpFault* HttpConnection::fault() const {
  if (state_ != State::kReading) return nullptr;
  if (late_) return &late_;
  return reader_->fault() ? &reader_->fault() : nullptr;
}

void HttpConnection::Refuse(const HttpResponse& response, int64_t now_ns) {
  to_head_ = reader_->is_head();
  lingers_ = true;
  Respond(response, /*keeps_alive=*/false, now_ns);
}

void HttpConnection::Answer(const HttpResponse& response, int64_t now_ns) {
  if (state_ == State::kAbandoned) return Close(State::kOver);
  if (state_ != State::kAwaiting) return;
  const bool has_more = !input_ended_ || !input_.empty();
  Respond(response, keeps_alive_ && has_more, now_ns);
}

void HttpConnection::Respond(const HttpResponse& response, bool keeps_alive, int64_t now_ns) {
  keeps_alive_ = keeps_alive;
  state_ = State::kAnswering;
  const HttpBodyForm form = to_head_ ? HttpBodyForm::kHeadOnly : HttpBodyForm::kWhole;
  Send(WriteResponse(response, form, keeps_alive_, absl::Now()), now_ns);
}

void HttpConnection::Follow(HttpFollowing following, int64_t now_ns) {
  if (state_ == State::kAbandoned) return Close(State::kOver);
  if (state_ != State::kAwaiting) return;
  // Whatever comes meanwhile is ignored, so there is no next request.
  keeps_alive_ = false;
  const HttpResponse head = {.content_type = std::move(following.content_type)};
  const HttpBodyForm form = is_chunked_ ? HttpBodyForm::kChunked : HttpBodyForm::kUntilClose;
  state_ = to_head_ ? State::kAnswering : State::kFollowing;
  if (!to_head_) follower_ = std::move(following.follower);
  input_.clear();
  Send(WriteResponse(head, form, /*keeps_alive=*/false, absl::Now()), now_ns);
  if (state_ == State::kFollowing) TakeFromFollower(now_ns);
}

void HttpConnection::OnFollowerReady(int64_t now_ns) {
  if (state_ == State::kFollowing) TakeFromFollower(now_ns);
}

void HttpConnection::TakeFromFollower(int64_t now_ns) {
  if (follower_->is_behind()) return Close(State::kOver);  // without the end of its response
  if (!output_.empty()) return;  // more waits with the feed, which has a bound for it
  HttpFollower::Taken taken = follower_->Take();
  std::string text;
  if (!taken.text.empty()) text = is_chunked_ ? WriteChunk(taken.text) : std::move(taken.text);
  if (taken.is_ended) {
    if (is_chunked_) text += kLastChunk;
    state_ = State::kAnswering;
  }
  Send(text, now_ns);
}

// The rest goes out when the client takes it.
void HttpConnection::Send(std::string_view text, int64_t now_ns) {
  deadline_ns_ = After(now_ns, limits_.response);
  sent_in_time_ = 0;
  output_ += text;
  Flush(now_ns);
}

void HttpConnection::Flush(int64_t now_ns) {
  while (sent_ < output_.size()) {
    const ssize_t sent =
        send(fd(), output_.data() + sent_, output_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return OnGone();
    if (sent < 0) break;
    sent_ += static_cast<size_t>(sent);
    sent_in_time_ += static_cast<size_t>(sent);
  }
  const bool is_responding = state_ == State::kAnswering || state_ == State::kFollowing;
  if (sent_ < output_.size()) {
    if (!is_responding || sent_in_time_ < kLeastTaken) return;
    deadline_ns_ = After(now_ns, limits_.response);
    sent_in_time_ = 0;
    return;
  }
  output_ = {};
  sent_ = 0;
  if (state_ == State::kFollowing) deadline_ns_ = kNever;
  if (state_ == State::kAnswering) EndResponse(now_ns);
}

void HttpConnection::EndResponse(int64_t now_ns) {
  follower_ = nullptr;
  idle_since_ns_ = now_ns;
  if (keeps_alive_) {
    state_ = State::kIdle;
    deadline_ns_ = After(now_ns, limits_.idle);
    return;
  }
  if (input_ended_ || !lingers_) return Close(State::kOver);
  shutdown(fd(), SHUT_WR);
  state_ = State::kLingering;
  deadline_ns_ = After(now_ns, limits_.linger);
}

void HttpConnection::OnGone() {
  Close(state_ == State::kAwaiting ? State::kAbandoned : State::kOver);
}

void HttpConnection::Close(State state) {
  state_ = state;
  fd_ = UniqueFd();
  deadline_ns_ = kNever;
  input_ = {};
  output_ = {};
  sent_ = 0;
  follower_ = nullptr;
}

}  // namespace ringside
