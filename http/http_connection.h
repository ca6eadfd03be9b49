// A client's connection to a server: requests in, one at a time, and their answers out.
//
// It never waits: it does what can be done at once, and says which events and which moment it needs
// next. Threads: the server's alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "http/http_answer.h"
#include "http/http_limits.h"
#include "http/http_reader.h"

namespace ringside {

class HttpConnection {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  HttpConnection(UniqueFd fd, const HttpLimits& limits, int64_t now_ns);

  int fd() const { return fd_.get(); }
  // Of epoll, for its descriptor; 0: only that the client is gone.
  uint32_t wanted_events() const;
  // When OnTime wants to be called.
  int64_t deadline_ns() const { return deadline_ns_; }
  // Nothing is left to do, or nobody to do it for.
  bool is_over() const { return state_ == State::kOver; }
  // Since when it has had its answer and says nothing, so that it could be ended for another
  // client; kNever if that is not so.
  int64_t idle_since_ns() const {
    return state_ == State::kIdle || state_ == State::kLingering ? idle_since_ns_ : kNever;
  }
  bool is_following() const { return state_ == State::kFollowing; }
  bool awaits_answer() const { return state_ == State::kAwaiting || state_ == State::kAbandoned; }

  // `events` are epoll's; `buffer` is for what is read.
  void OnEvents(uint32_t events, std::span<char> buffer, int64_t now_ns);
  void OnTime(int64_t now_ns);

  // The next request, if it has come whole. From now on the connection awaits its answer.
  std::optional<HttpRequest> NextRequest(int64_t now_ns);
  // Instead of it: a request that is refused. The caller forms the response and hands it to Refuse.
  const HttpFault* fault() const;
  std::string_view path() const { return reader_->request().path; }  // as far as it was read
  void Refuse(const HttpResponse& response, int64_t now_ns);

  // The answer to what it awaits.
  void Answer(const HttpResponse& response, int64_t now_ns);
  void Follow(HttpFollowing following, int64_t now_ns);
  void OnFollowerReady(int64_t now_ns);

 private:
  enum class State {
    kIdle,       // nothing of a request has come
    kReading,    // something has
    kAwaiting,   // a request is with the handler; its client is there
    kAbandoned,  // a request is with the handler; its client is gone
    kAnswering,  // a response is being sent
    kFollowing,  // a response that goes on
    kLingering,  // a refusal is sent, and the client has to close its end
    kOver,
  };

  void Read(std::span<char> buffer, int64_t now_ns);
  void FeedReader(std::string_view text, int64_t now_ns);
  void Respond(const HttpResponse& response, bool keeps_alive, int64_t now_ns);
  void Send(std::string_view text, int64_t now_ns);
  void Flush(int64_t now_ns);
  void EndResponse(int64_t now_ns);
  void TakeFromFollower(int64_t now_ns);
  void OnGone();
  void Close(State state);

  const HttpLimits& limits_;
  UniqueFd fd_;
  State state_ = State::kIdle;
  int64_t deadline_ns_;
  int64_t idle_since_ns_ = kNever;  // never: it has had no request yet
  std::unique_ptr<HttpRequestReader> reader_;
  HttpFault late_;          // the request has taken too long
  bool continued_ = false;  // 100 Continue was sent for it
  std::string input_;       // what has come after the request that is being answered
  bool input_ended_ = false;
  size_t ignored_ = 0;  // bytes that were read and forgotten
  std::string output_;
  size_t sent_ = 0;          // of the output
  size_t sent_in_time_ = 0;  // since the deadline was set
  // Of the request that is answered, and of its response.
  bool keeps_alive_ = false;
  bool lingers_ = false;  // the client may still be sending what was refused
  bool to_head_ = false;
  bool is_chunked_ = false;  // as far as its response goes on
  std::shared_ptr<HttpFollower> follower_;
};

}  // namespace ringside
