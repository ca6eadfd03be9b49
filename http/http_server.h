// An HTTP/1.1 server on a Unix socket, for a control socket: few clients, small messages, strict.
//
// It has one thread, which waits for nobody: clients that are slow, silent or gone end by their
// limits (HttpLimits), and an answer may come later, from another thread. While nothing happens and
// nothing has a time limit, the thread does not wake up.
//
// Ownership: the server owns its listener; the handler and the log are the caller's and outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log_limit.h"
#include "http/http_connection.h"
#include "http/http_handler.h"
#include "http/http_limits.h"
#include "http/http_mailbox.h"
#include "base/unix_listener.h"
#include "ringside/log.h"

namespace ringside {

class HttpServer {
 public:
  // `log` may be nullptr.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(UnixListener listener,
                                                           HttpHandler& handler,
                                                           const HttpLimits& limits, LogSink* log);
  // Answers that were sent before go out as far as their clients take them at once. Then all
  // connections are closed; answers that come later are dropped.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct Client {
    std::unique_ptr<HttpConnection> connection;
    uint32_t watched = 0;
    bool is_watched = false;
  };
  using Clients = std::map<uint64_t, Client>;  // by ticket, which no other ever gets

  HttpServer(UnixListener listener, HttpHandler& handler, const HttpLimits& limits, LogSink* log,
             UniqueFd epoll, std::shared_ptr<HttpMailbox> mailbox);
  void Run();
  void Turn();
  int TimeoutMs() const;
  void Accept();
  void AcceptOne(UniqueFd fd);
  void EndIdleClient();
  bool HasRoom() const;
  void WatchListener();
  void HandleMail();
  void Deliver(HttpConnection& connection, HttpMailbox::Mail mail);
  void Settle(Clients::iterator client);
  absl::Status Watch(int fd, uint64_t ticket, uint32_t events, bool is_new) const;

  const UnixListener listener_;
  HttpHandler& handler_;
  const HttpLimits limits_;
  LogLimit strangers_;  // logged: who may not connect
  LogLimit troubles_;   // logged: connections that could not be taken
  const UniqueFd epoll_;
  const std::shared_ptr<HttpMailbox> mailbox_;

  // Of the thread.
  int64_t now_ns_ = 0;
  uint64_t last_ticket_;
  Clients clients_;
  bool is_listening_ = true;
  int64_t accepts_again_ns_ = 0;
  std::vector<char> buffer_;

  std::thread thread_;
};

}  // namespace ringside
