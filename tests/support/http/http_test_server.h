// A server on a socket of its own, and clients that say what they like.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "http/http_server.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// Connected to the path, without a word.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : RawClient() { Connect(path); }
  // Not yet connected.
  RawClient() : fd_(Must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")) {}
  void Connect(const std::string& path) const {
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    Must(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
         "connect");
  }

  int fd() const { return fd_.get(); }
  // As much as the server takes: it may have closed its end.
  void Send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = send(fd(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void EndSending() const { shutdown(fd(), SHUT_WR); }
  void Close() { fd_ = UniqueFd(); }

  // What comes until it holds `end`, or the server closes its end.
  std::string ReadUntil(std::string_view end) {
    while (text_.find(end) == std::string::npos && ReadSome()) {
    }
    const size_t found = text_.find(end);
    const size_t size = found == std::string::npos ? text_.size() : found + end.size();
    return std::exchange(text_, text_.substr(size)).substr(0, size);
  }
  std::string ReadAll() {
    while (ReadSome()) {
    }
    return std::exchange(text_, {});
  }
  std::string Ask(std::string_view request) {
    Send(request);
    return ReadAll();
  }
  // Whether the server has closed its end, or does so before long.
  bool IsClosed() { return ReadAll(), is_closed_; }

 private:
  bool ReadSome() {
    char chunk[4096];
    if (!WaitForFd(fd(), POLLIN)) return false;
    const ssize_t got = read(fd(), chunk, sizeof chunk);
    is_closed_ = got <= 0;
    if (is_closed_) return false;
    text_.append(chunk, static_cast<size_t>(got));
    return true;
  }

  UniqueFd fd_;
  std::string text_;
  bool is_closed_ = false;
};

// Answers each request with what the test says; without that it keeps the answers for the test.
class TestHandler final : public HttpHandler {
 public:
  using Function = std::function<void(HttpRequest, HttpAnswer)>;
  explicit TestHandler(Function function = {}) : function_(std::move(function)) {}

  void Handle(HttpRequest request, HttpAnswer answer) override {
    if (function_) return function_(std::move(request), std::move(answer));
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(std::move(request), std::move(answer));
    ++count_;
    changed_.notify_all();
  }

  // The next that was kept; the test fails if none comes.
  std::pair<HttpRequest, HttpAnswer> Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoSeconds(kWaitLimit),
                           [this] { return !kept_.empty(); })) {
      ADD_FAILURE() << "no request came";
      return {HttpRequest(), HttpAnswer(nullptr, 0)};
    }
    std::pair<HttpRequest, HttpAnswer> next = std::move(kept_.front());
    kept_.pop_front();
    return next;
  }
  void WaitForCount(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoSeconds(kWaitLimit), [&] { return count_ >= count; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  const Function function_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<HttpRequest, HttpAnswer>> kept_;
  size_t count_ = 0;
};

// "GET /path body" of each request, as its answer.
inline void Echo(HttpRequest request, HttpAnswer answer) {
  answer.Send({.content_type = "text/plain",
               .body = request.method + " " + request.path + " " + request.body});
}

class TestServer {
 public:
  explicit TestServer(HttpHandler& handler, const HttpLimits& limits = {}) {
    absl::StatusOr<UnixListener> listener = UnixListener::Bind(path());
    EXPECT_TRUE(listener.ok()) << listener.status();
    auto server = HttpServer::Start(*std::move(listener), handler, limits, &log_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string path() const { return directory_ / "control"; }
  RecordingLog& log() { return log_; }
  void Stop() { server_ = nullptr; }

 private:
  const TempDirectory directory_;
  RecordingLog log_;
  std::unique_ptr<HttpServer> server_;
};

// A thread of this process, as /proc shows it. 0 if none has the name.
inline pid_t ThreadNamed(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return std::stoi(task.path().filename());
  }
  return 0;
}
inline std::string ThreadStatus(pid_t thread, const std::string& field) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return line.substr(field.size() + 1);
  }
  return "";
}
inline bool IsAsleep(pid_t thread) {
  return ThreadStatus(thread, "State").find('S') != std::string::npos;
}
// How often it has been asleep.
inline uint64_t Switches(pid_t thread) {
  return std::stoull(ThreadStatus(thread, "voluntary_ctxt_switches"));
}

}  // namespace ringside::testing
