// The hub's sockets of the host.
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/clock.h"
#include "devices/vsock_hub.h"
#include "net/connect_line.h"

namespace ringside {
namespace {

constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 16;

// As recvmsg or sendmsg, which never wait here.
template <typename Call>
ssize_t Uninterrupted(Call call) {
  while (true) {
    const ssize_t result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

ssize_t SendParts(int fd, std::span<const iovec> parts) {
  const msghdr message = {.msg_iov = const_cast<iovec*>(parts.data()), .msg_iovlen = parts.size()};
  return Uninterrupted([&] { return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
}

}  // namespace

void VsockHub::RunSockets() {
  if (accepts_) AcceptSome();
  if (!std::exchange(sockets_told_, false)) return;
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, 0);
  sockets_told_ = count == kEventsPerTurn;
  in_events_ = true;
  for (int i = 0; i < count; ++i) {
    auto* const client = static_cast<VsockClient*>(events[i].data.ptr);
    if (client == nullptr) {
      accepts_ = accept_again_ns_ == 0;
    } else {
      Event(*client, events[i].events);
    }
  }
  in_events_ = false;
  gone_.clear();
}

// Nothing of this waits in the meantime but in the socket's queue.
void VsockHub::AcceptAgain(int64_t in_ns) {
  accepts_ = false;
  accept_again_ns_ = MonotonicNs() + in_ns;
  StartTimer();
}

// A restored driver would close what it has accepted before it handles the event that tells it.
bool VsockHub::HoldsConnections() {
  if (!reset_notice_.IsPending()) return false;
  const int64_t now_ns = MonotonicNs();
  if (hold_ends_ns_ == 0) hold_ends_ns_ = now_ns + kResetNs;
  return now_ns < hold_ends_ns_;
}

void VsockHub::AcceptSome() {
  if (HoldsConnections()) return AcceptAgain(kResetLookNs);
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd;
    const VsockHost::Got got = host_.Accept(fd);
    if (got == VsockHost::Got::kConnection) {
      VsockClient* const client = HasRoom() ? Add(std::move(fd)) : nullptr;
      if (client != nullptr) {
        SetWait(*client, Wait::kGreeting);
      } else {
        counts_.refused.Add();
      }
      continue;
    }
    accepts_ = false;
    if (got == VsockHost::Got::kNothing) return;
    // It would make each look find it: so there is none for a while.
    LogOnce(logged_descriptors_, kShortOfDescriptors);
    return AcceptAgain(kAcceptAgainNs);
  }
}

void VsockHub::Event(VsockClient& client, uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) client.hung_up = true;
  switch (client.stage) {
    case VsockClient::Stage::kGreeting:
      return Greet(client);
    case VsockClient::Stage::kJoined:
      return EventOfJoined(client, events);
    case VsockClient::Stage::kLingering:
      if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Remove(client);
      if ((events & EPOLLOUT) != 0) Flush(client);
      return;
    case VsockClient::Stage::kGone:
      return;
  }
}

void VsockHub::EventOfJoined(VsockClient& client, uint32_t events) {
  VsockConnection& connection = *client.connection;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    if (!connection.is_open()) {
      counts_.refused.Add();
      return Break(client);
    }
    // Where the guest has ended its half before, that is what the host sees, too: it may still have
    // sent something.
    connection.guest_sends() ? HostTakesNothing(client) : Flush(client);
  } else if ((events & EPOLLOUT) != 0) {
    Flush(client);
  }
  if ((events & ~uint32_t{EPOLLOUT}) != 0) {
    // The second that tells of what cannot be read now: nobody wants to hear of a third.
    if (client.readable) Watch(client, client.watched & ~uint32_t{EPOLLIN});
    client.readable = true;
  }
  Update(client);
}

void VsockHub::Watch(VsockClient& client, uint32_t events) {
  if (client.watched == events) return;
  client.watched = events;
  epoll_event event = {.events = events, .data = {.ptr = &client}};
  // It is in there already: that cannot fail.
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event);
}

// The beginning of one that the host has made.

void VsockHub::Greet(VsockClient& client) {
  char bytes[ConnectLine::kMaxLength];
  // Looked at first: what stands behind the line is the guest's.
  const ssize_t size = Uninterrupted(
      [&] { return recv(client.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK); });
  if (size < 0 && errno == EAGAIN) return;
  ConnectLine line = {.state = ConnectLine::State::kWrong};
  if (size > 0) line = ParseConnectLine({bytes, static_cast<size_t>(size)});
  if (line.state == ConnectLine::State::kPartial && !client.hung_up) return;
  const bool joins =
      line.state == ConnectLine::State::kWhole &&
      recv(client.fd.get(), bytes, line.length, MSG_DONTWAIT) == static_cast<ssize_t>(line.length);
  if (joins) return Join(client, line.port);
  counts_.refused.Add();
  Remove(client);
}

void VsockHub::Join(VsockClient& client, uint32_t guest_port) {
  client.connection.emplace(
      VsockConnection::AskedByHost({.host = NextPort(guest_port), .guest = guest_port}));
  client.stage = VsockClient::Stage::kJoined;
  table_.Add(client);
  SetWait(client, Wait::kAnswer);
  Update(client);
}

// In turns, so that a guest which is slow to forget a connection does not mistake the next for it.
uint32_t VsockHub::NextPort(uint32_t guest_port) {
  while (true) {
    const uint32_t port = next_port_;
    next_port_ = kFirstOwnPort + (port + 1 - kFirstOwnPort) % kOwnPorts;
    if (table_.Find({.host = port, .guest = guest_port}) == nullptr) return port;
  }
}

// The guest has accepted. Whether the host is still there to hear of it.
bool VsockHub::Opened(VsockClient& client) {
  counts_.made.Add();
  const std::string line = absl::StrFormat("OK %d\n", client.connection->ports().host);
  const ssize_t sent = send(client.fd.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(line.size())) return false;
  client.readable = true;
  SetWait(client, Wait::kNothing);
  return true;
}

// From the host to the guest.

// `all`: there was no more, so that an event tells of what comes next. If the host has hung up
// none does, and reading goes on until it has found that.
void VsockHub::HasRead(VsockClient& client, bool all) {
  if (!all || client.hung_up) return;
  client.readable = false;
  Watch(client, client.watched | EPOLLIN);
}

// Into the buffer behind where its header will be. How many bytes.
uint32_t VsockHub::Read(VsockClient& client, std::span<const Segment> buffer) {
  const uint32_t most = client.connection->MaySend();
  const std::span<iovec> parts = BehindVsockHeader(buffer, most, parts_);
  const uint64_t room = std::min<uint64_t>(TotalLength(buffer) - kVsockHeaderSize, most);
  msghdr message = {.msg_iov = parts.data(), .msg_iovlen = parts.size()};
  const ssize_t size =
      Uninterrupted([&] { return recvmsg(client.fd.get(), &message, MSG_DONTWAIT); });
  if (size > 0) {
    // The kernel drops descriptors that are sent along, and ends a read behind those bytes.
    const bool is_cut = (message.msg_flags & MSG_CTRUNC) != 0;
    HasRead(client, static_cast<uint64_t>(size) < room && !is_cut);
    return static_cast<uint32_t>(size);
  }
  if (size < 0 && errno == EAGAIN) {
    client.hung_up = false;  // of its other half
    HasRead(client, true);
    return 0;
  }
  client.readable = false;
  client.connection->HostSendsNoMore();
  if (size < 0) HostTakesNothing(client);
  return 0;
}

// From the guest to the host.

// `payload` has `length` bytes. Small packets of one stream go together: what a system call costs
// is much more than what they do.
void VsockHub::Write(VsockClient& client, std::span<const iovec> payload, uint32_t length) {
  if (!client.connection->host_receives()) return client.connection->Forward(length);
  if (!client.backlog.empty()) return Keep(client, payload, 0);
  if (gathered_.count + payload.size() > VsockGathered::kMaxPieces) {
    SendGathered();
    // Which may have changed what it is for.
    if (!client.connection->host_receives() || !client.backlog.empty()) {
      return Write(client, payload, length);
    }
  }
  if (payload.size() > VsockGathered::kMaxPieces) return WriteNow(client, payload, length);
  gathered_.client = &client;
  std::ranges::copy(payload, &gathered_.pieces[gathered_.count]);
  gathered_.count += payload.size();
  gathered_.length += length;
}

void VsockHub::SendGathered() {
  if (gathered_.client == nullptr) return;
  VsockClient& client = *std::exchange(gathered_.client, nullptr);
  const size_t count = std::exchange(gathered_.count, 0);
  const uint32_t length = std::exchange(gathered_.length, 0);
  WriteNow(client, std::span(gathered_.pieces).first(count), length);
  Update(client);
}

// Of a client without a backlog.
void VsockHub::WriteNow(VsockClient& client, std::span<const iovec> payload, uint32_t length) {
  const ssize_t result = SendParts(client.fd.get(), payload);
  if (result < 0 && errno != EAGAIN && errno != ENOBUFS) {
    client.connection->Forward(length);
    return HostTakesNothing(client);
  }
  const size_t sent = result > 0 ? static_cast<size_t>(result) : 0;
  client.connection->Forward(static_cast<uint32_t>(sent));
  if (sent < length) Keep(client, payload, sent);
}

// What the socket has not taken.
void VsockHub::Keep(VsockClient& client, std::span<const iovec> payload, size_t sent) {
  if (!client.backlog.has_memory()) {
    client.backlog.Give(spare_.empty()
                            ? std::make_unique_for_overwrite<std::byte[]>(VsockBacklog::kSize)
                            : std::move(spare_.back()));
    if (!spare_.empty()) spare_.pop_back();
    Watch(client, client.watched | EPOLLOUT);
  }
  client.backlog.Put(payload, sent);
}

// The socket takes data again.
void VsockHub::Flush(VsockClient& client) {
  while (!client.backlog.empty()) {
    std::array<iovec, 2> pieces = client.backlog.pieces();
    const size_t count = pieces[1].iov_len > 0 ? 2 : 1;
    const ssize_t sent = SendParts(client.fd.get(), std::span(pieces).first(count));
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return;
    if (sent < 0) return HostTakesNothing(client);
    client.backlog.Drop(static_cast<size_t>(sent));
    client.connection->Forward(static_cast<uint32_t>(sent));
  }
  AfterFlush(client);
}

// It has hung up: what is left for it is nobody's.
void VsockHub::HostTakesNothing(VsockClient& client) {
  client.connection->Forward(static_cast<uint32_t>(client.backlog.size()));
  client.backlog.Drop(client.backlog.size());
  client.connection->HostReceivesNoMore();
  AfterFlush(client);
}

void VsockHub::AfterFlush(VsockClient& client) {
  if (client.stage == VsockClient::Stage::kLingering) return Remove(client);
  Watch(client, client.watched & ~uint32_t{EPOLLOUT});
  KeepMemory(client.backlog);
  if (!client.connection->guest_sends()) shutdown(client.fd.get(), SHUT_WR);
}

// The guest is done with it, and has sent what is still here: its ports are free again.
void VsockHub::Linger(VsockClient& client) {
  if (client.backlog.empty()) return Remove(client);
  table_.Remove(client);
  ready_.Remove(client);
  client.stage = VsockClient::Stage::kLingering;
  SetWait(client, Wait::kLinger);
}

}  // namespace ringside
