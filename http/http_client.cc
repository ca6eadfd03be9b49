#include "http/http_client.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "base/unix_connect.h"
#include "http/http_writer.h"

namespace ringside {
namespace {

constexpr int kMostInterim = 8;  // responses 1xx before the response
constexpr size_t kReadAtOnce = 64 << 10;
constexpr size_t kShown = 1024;  // of an error's body

absl::Status ConnectError(int error, const std::string& path) {
  const std::string what = absl::StrFormat("cannot connect to control socket '%s'", path);
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return BadInput("'%s' is no socket; give the control socket of a machine", path);
  }
  switch (error) {
    case ENOENT:
      return ErrnoError(error, what, "start the machine, or give its socket's path");
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrFormat("%s: its process is gone; start the machine again", what));
    case EACCES:
    case EPERM:
      return ErrnoError(error, what, "run as the user of the machine's process");
    case EAGAIN:
      return absl::UnavailableError(
          absl::StrFormat("%s: its server takes no further client; try again later", what));
    default:
      return ErrnoError(error, what);
  }
}

}  // namespace

absl::StatusOr<HttpClient> HttpClient::Connect(const std::string& path, absl::Duration limit) {
  RINGSIDE_ASSIGN_OR_RETURN(
      UniqueFd fd, ConnectUnix(path, limit, [&](int error) { return ConnectError(error, path); }));
  return HttpClient(std::move(fd), path, limit);
}

absl::StatusOr<HttpResponse> HttpClient::Call(std::string_view method, std::string_view target,
                                              std::string_view body,
                                              std::string_view content_type) {
  const Deadline deadline = DeadlineIn(limit_);
  RINGSIDE_RETURN_IF_ERROR(Send(method, target, body, content_type, deadline));
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<HttpResponseReader> reader,
                            ReceiveHead({.body = kMostBody}, method == "HEAD", deadline));
  RINGSIDE_RETURN_IF_ERROR(Receive(*reader, deadline, [&] { return reader->is_complete(); }));
  if (!reader->framing().keeps_alive) fd_ = UniqueFd();
  return reader->Take();
}

absl::Status HttpClient::Follow(std::string_view target,
                                const std::function<bool(std::string_view)>& take) {
  const Deadline deadline = DeadlineIn(limit_);
  RINGSIDE_RETURN_IF_ERROR(Send("GET", target, {}, {}, deadline));
  // Each piece is taken as it comes, so its number of bytes is no matter.
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<HttpResponseReader> reader,
                            ReceiveHead({.body = SIZE_MAX}, false, deadline));
  if (reader->status() != 200) {
    std::string said;
    RINGSIDE_RETURN_IF_ERROR(Receive(*reader, deadline, [&] {
      if (said.size() < kShown) said += reader->TakeBody();
      return reader->is_complete() || said.size() >= kShown;
    }));
    fd_ = UniqueFd();
    return absl::UnavailableError(absl::StrFormat("'%s' answers %d: %s", target, reader->status(),
                                                  Printable(said.substr(0, kShown))));
  }
  bool goes_on = true;
  const auto hand_over = [&] {
    const std::string text = reader->TakeBody();
    if (!text.empty()) goes_on = take(text);
    return !goes_on || reader->is_complete();
  };
  const absl::Status result = Receive(*reader, DeadlineIn(absl::InfiniteDuration()), hand_over);
  fd_ = UniqueFd();
  return result;
}

absl::Status HttpClient::Send(std::string_view method, std::string_view target,
                              std::string_view body, std::string_view content_type,
                              Deadline deadline) {
  if (!fd_.valid()) {
    return absl::UnavailableError(
        absl::StrFormat("the connection to '%s' is closed; connect again", path_));
  }
  std::string text = WriteRequest(method, target, body, content_type);
  HttpRequest checked;
  int minor_version = 0;
  const std::string_view line = std::string_view(text).substr(0, text.find("\r\n"));
  if (const HttpFault fault = ParseRequestLine(line, checked, minor_version)) {
    return BadInput("%s", fault.reason);
  }
  for (std::string_view left = text; !left.empty();) {
    const ssize_t sent = send(fd_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      left.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (absl::Status ready = WaitFor(POLLOUT, deadline); !ready.ok())
        return Broken(Message(ready));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      break;  // it has answered already, most likely: that it takes no more
    } else if (errno != EINTR) {
      return Broken(Message(ErrnoError(errno, "cannot send")));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HttpResponseReader>> HttpClient::ReceiveHead(
    const HttpMessageLimits& limits, bool to_head, Deadline deadline) {
  for (int i = 0; i <= kMostInterim; ++i) {
    auto reader = std::make_unique<HttpResponseReader>(limits, to_head);
    RINGSIDE_RETURN_IF_ERROR(Receive(*reader, deadline, [&] { return reader->has_head(); }));
    if (reader->status() >= 200) return reader;
  }
  return Broken("it sends one interim response after the other");
}

absl::Status HttpClient::Receive(HttpResponseReader& reader, Deadline deadline,
                                 const std::function<bool()>& is_enough) {
  bool is_over = false;
  while (true) {
    const size_t taken = reader.Feed(input_);
    input_.erase(0, taken);
    if (is_over) reader.End();
    if (reader.fault()) return Broken(reader.fault().reason);
    if (is_enough()) return absl::OkStatus();
    if (absl::Status ready = WaitFor(POLLIN, deadline); !ready.ok()) return Broken(Message(ready));
    input_.resize(kReadAtOnce);
    const ssize_t got = recv(fd_.get(), input_.data(), input_.size(), MSG_DONTWAIT);
    input_.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return Broken(Message(ErrnoError(errno, "cannot receive")));
    }
    is_over = got == 0;
  }
}

absl::Status HttpClient::WaitFor(short events, Deadline deadline) const {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("it takes too long");
    pollfd watched{.fd = fd_.get(), .events = events, .revents = 0};
    const int timeout = static_cast<int>(std::min<int64_t>(left.count(), INT_MAX));
    const int result = ::poll(&watched, 1, timeout);
    if (result > 0) return absl::OkStatus();
    if (result < 0 && errno != EINTR) return ErrnoError(errno, "cannot wait");
  }
}

absl::Status HttpClient::Broken(std::string_view what) {
  fd_ = UniqueFd();
  return absl::UnavailableError(
      absl::StrFormat("no answer from control socket '%s': %s", path_, what));
}

}  // namespace ringside
