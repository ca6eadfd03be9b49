#include "http/http_server.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <sys/epoll.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

namespace ringside {
namespace {

constexpr uint64_t kListener = 0;
constexpr uint64_t kMailbox = 1;
constexpr int kEventsAtOnce = 32;
constexpr int kAcceptsAtOnce = 16;
constexpr size_t kReadAtOnce = 16 << 10;
// After a connection could not be taken, for want of descriptors most likely: it stays readable.
constexpr int64_t kAcceptPauseNs = 200'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(UnixListener listener,
                                                              HttpHandler& handler,
                                                              const HttpLimits& limits,
                                                              LogSink* log) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot create an epoll", "raise 'ulimit -n'");
  RINGSIDE_ASSIGN_OR_RETURN(std::shared_ptr<HttpMailbox> mailbox, HttpMailbox::Create());
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(listener), handler, limits, log,
                                                    std::move(epoll), std::move(mailbox)));
  RINGSIDE_RETURN_IF_ERROR(server->Watch(server->listener_.fd(), kListener, EPOLLIN, true));
  RINGSIDE_RETURN_IF_ERROR(server->Watch(server->mailbox_->fd(), kMailbox, EPOLLIN, true));
  RINGSIDE_ASSIGN_OR_RETURN(server->thread_,
                            StartThread("http", [self = server.get()] { self->Run(); }));
  return server;
}

HttpServer::HttpServer(UnixListener listener, HttpHandler& handler, const HttpLimits& limits,
                       LogSink* log, UniqueFd epoll, std::shared_ptr<HttpMailbox> mailbox)
    : listener_(std::move(listener)),
      handler_(handler),
      limits_(limits),
      strangers_(Logger(log)),
      troubles_(Logger(log)),
      epoll_(std::move(epoll)),
      mailbox_(std::move(mailbox)),
      last_ticket_(kMailbox),
      buffer_(kReadAtOnce) {}

HttpServer::~HttpServer() {
  mailbox_->Stop();
  if (thread_.joinable()) thread_.join();
}

void HttpServer::Run() {
  while (!mailbox_->is_stopped()) Turn();
  HandleMail();
  mailbox_->Close();
  clients_.clear();
}

void HttpServer::Turn() {
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, TimeoutMs());
  now_ns_ = MonotonicNs();
  for (int i = 0; i < count; ++i) {
    const uint64_t ticket = events[i].data.u64;
    if (ticket == kListener) {
      Accept();
    } else if (ticket == kMailbox) {
      HandleMail();
    } else if (const auto client = clients_.find(ticket); client != clients_.end()) {
      client->second.connection->OnEvents(events[i].events, buffer_, now_ns_);
      Settle(client);
    }
  }
  // Few enough to look at each: a list sorted by time would cost more than it spares.
  for (auto next = clients_.begin(); next != clients_.end();) {
    const auto client = next++;
    if (client->second.connection->deadline_ns() > now_ns_) continue;
    client->second.connection->OnTime(now_ns_);
    Settle(client);
  }
  WatchListener();
}

int HttpServer::TimeoutMs() const {
  int64_t next_ns = HttpConnection::kNever;
  for (const auto& [ticket, client] : clients_) {
    next_ns = std::min(next_ns, client.connection->deadline_ns());
  }
  if (accepts_again_ns_ != 0) next_ns = std::min(next_ns, accepts_again_ns_);
  if (next_ns == HttpConnection::kNever) return -1;
  const int64_t left_ms = std::max<int64_t>(0, next_ns - MonotonicNs()) / 1'000'000;
  return static_cast<int>(std::min<int64_t>(left_ms + 1, INT_MAX));
}

void HttpServer::Accept() {
  for (int i = 0; i < kAcceptsAtOnce && HasRoom(); ++i) {
    absl::StatusOr<std::optional<UnixListener::Accepted>> accepted = listener_.Accept();
    if (!accepted.ok()) {
      troubles_.Log(Severity::kWarning, "%s", Message(accepted.status()));
      accepts_again_ns_ = now_ns_ + kAcceptPauseNs;
      return;
    }
    if (!accepted->has_value()) return;
    const uid_t peer = (*accepted)->peer;
    if (!IsTrustedPeer(peer, geteuid())) {
      strangers_.Log(
          Severity::kWarning,
          "a process of user %d may not use the control socket; its connection is closed", peer);
      continue;
    }
    if (clients_.size() >= limits_.connections) EndIdleClient();
    AcceptOne(std::move((*accepted)->fd));
  }
}

void HttpServer::AcceptOne(UniqueFd fd) {
  const auto client = clients_.emplace(++last_ticket_, Client()).first;
  client->second.connection = std::make_unique<HttpConnection>(std::move(fd), limits_, now_ns_);
  Settle(client);
}

// Room for one more, also by ending a client that has had its answer and sends nothing.
bool HttpServer::HasRoom() const {
  return clients_.size() < limits_.connections ||
         std::ranges::any_of(
             clients_,
             [](const auto& each) {
               return each.second.connection->idle_since_ns() != HttpConnection::kNever;
             });
}

void HttpServer::EndIdleClient() {
  clients_.erase(std::ranges::min_element(
      clients_, {}, [](const auto& each) { return each.second.connection->idle_since_ns(); }));
}

void HttpServer::WatchListener() {
  if (accepts_again_ns_ != 0 && now_ns_ >= accepts_again_ns_) accepts_again_ns_ = 0;
  const bool listens = accepts_again_ns_ == 0 && HasRoom();
  if (listens == is_listening_) return;
  if (Watch(listener_.fd(), kListener, listens ? EPOLLIN : 0U, false).ok()) is_listening_ = listens;
}

void HttpServer::HandleMail() {
  for (HttpMailbox::Mail& mail : mailbox_->Take()) {
    const auto client = clients_.find(mail.ticket);
    if (client == clients_.end()) continue;
    Deliver(*client->second.connection, std::move(mail));
    Settle(client);
  }
}

void HttpServer::Deliver(HttpConnection& connection, HttpMailbox::Mail mail) {
  if (const auto* response = std::get_if<HttpResponse>(&mail.content)) {
    return connection.Answer(*response, now_ns_);
  }
  auto* following = std::get_if<HttpFollowing>(&mail.content);
  if (following == nullptr) return connection.OnFollowerReady(now_ns_);
  const size_t followers = std::ranges::count_if(
      clients_, [](const auto& each) { return each.second.connection->is_following(); });
  if (followers < limits_.followers) {
    connection.Follow(std::move(*following), now_ns_);
  } else {
    connection.Answer(
        JsonError(503, absl::StrFormat("%d connections follow already; end one", followers)),
        now_ns_);
  }
}

// After anything has happened to a connection: its next request, and what it waits for now.
void HttpServer::Settle(Clients::iterator client) {
  HttpConnection& connection = *client->second.connection;
  if (std::optional<HttpRequest> request = connection.NextRequest(now_ns_)) {
    handler_.Handle(*std::move(request), HttpAnswer(mailbox_, client->first));
  } else if (const HttpFault* fault = connection.fault()) {
    connection.Refuse(handler_.Refuse(fault->status, connection.path(), fault->reason), now_ns_);
  }
  if (connection.is_over()) {
    clients_.erase(client);
    return;
  }
  const uint32_t wanted = connection.wanted_events();
  if (connection.fd() < 0) return;  // its client is gone
  if (client->second.is_watched && wanted == client->second.watched) return;
  if (!Watch(connection.fd(), client->first, wanted, !client->second.is_watched).ok()) {
    clients_.erase(client);  // no memory for it: its client sees it closed
    return;
  }
  client->second.is_watched = true;
  client->second.watched = wanted;
}

absl::Status HttpServer::Watch(int fd, uint64_t ticket, uint32_t events, bool is_new) const {
  epoll_event event{.events = events, .data = {.u64 = ticket}};
  if (epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0) {
    return absl::OkStatus();
  }
  return ErrnoError(errno, "cannot watch a descriptor");
}

}  // namespace ringside
