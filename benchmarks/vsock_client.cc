// The host's program for a guest that measures its vsock (tests/guest/vsock_order.h): it does its
// part of each job that the guest orders, one at a time, until it is killed.
//
//   vsock_client --path vm.sock
//
// `--path` is the Unix socket of the VMM, where "CONNECT PORT" reaches the guest; the client
// listens at PATH_4000 for orders and at PATH_4001 for streams out. It waits in one epoll, and has
// one message under way on each connection.
#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/unix_address.h"
#include "base/unix_listener.h"
#include "command/exit_codes.h"
#include "tests/guest/vsock_order.h"

namespace ringside {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr int kEventsPerTurn = 64;
// What the guest says that it has sent may still be on its way.
constexpr int64_t kLastBytesNs = 3'000'000'000;
constexpr int kLookMs = 50;  // for that, and at connections that were refused

struct Connection {
  enum class State { kGreeting, kTalking, kSink, kControl };
  State state;
  UniqueFd fd;
  uint64_t at = 0;             // bytes of the message at hand
  uint64_t last_number = 0;    // of streams out
  bool had_message = false;    // a number came before
  bool is_right = true;        // the message at hand, so far
  std::array<char, 40> bytes;  // the greeting, an order, or a number, while they are short of bytes
  size_t size = 0;
};

class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(const std::string& path);
  // Until a call fails.
  absl::Status Run();

 private:
  Client(std::string path, UnixListener orders, UnixListener sinks, UniqueFd epoll)
      : path_(std::move(path)),
        orders_(std::move(orders)),
        sinks_(std::move(sinks)),
        epoll_(std::move(epoll)),
        read_(kReadBytes) {}

  absl::Status Watch(int fd, const void* what);
  absl::Status AcceptAll(const UnixListener& listener, Connection::State state);
  absl::Status Add(UniqueFd fd, Connection::State state);
  absl::Status ConnectMissing();
  UniqueFd ConnectOne() const;
  void Read(Connection& connection);
  void TakeOrder(const guest::VsockOrder& order);
  void Greeted(Connection& connection, size_t size);
  bool SendMessage(Connection& connection);
  void TakeEcho(Connection& connection, std::span<const uint8_t> bytes);
  void TakeOut(Connection& connection, std::span<const uint8_t> bytes);
  void Drop(Connection& connection);
  void ReportWhenDone();

  const std::string path_;
  const UnixListener orders_, sinks_;
  const UniqueFd epoll_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> gone_;  // while events may refer to them
  std::vector<uint8_t> read_, message_;
  Connection* control_ = nullptr;
  guest::VsockOrder job_;
  guest::VsockReport report_;
  size_t clients_ = 0;        // connections to the guest
  bool runs_ = false;         // a job
  int64_t report_at_ns_ = 0;  // 0: the job is not over; by then at the latest otherwise
};

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const std::string& path) {
  const auto listen = [&](uint32_t port) {
    return UnixListener::Bind(path + "_" + std::to_string(port));
  };
  RINGSIDE_ASSIGN_OR_RETURN(UnixListener orders, listen(guest::kVsockControlPort));
  RINGSIDE_ASSIGN_OR_RETURN(UnixListener sinks, listen(guest::kVsockSinkPort));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot make an epoll", "raise 'ulimit -n'");
  std::unique_ptr<Client> client(
      new Client(path, std::move(orders), std::move(sinks), std::move(epoll)));
  // The listeners are those whose object is no connection.
  RINGSIDE_RETURN_IF_ERROR(client->Watch(client->orders_.fd(), &client->orders_));
  RINGSIDE_RETURN_IF_ERROR(client->Watch(client->sinks_.fd(), &client->sinks_));
  return client;
}

absl::Status Client::Watch(int fd, const void* what) {
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = const_cast<void*>(what)}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoError(errno, "cannot watch a socket", "raise fs.epoll.max_user_watches");
}

absl::Status Client::Add(UniqueFd fd, Connection::State state) {
  auto connection = std::make_unique<Connection>();
  connection->state = state;
  connection->fd = std::move(fd);
  RINGSIDE_RETURN_IF_ERROR(Watch(connection->fd.get(), connection.get()));
  if (state == Connection::State::kControl) control_ = connection.get();
  if (state == Connection::State::kGreeting) ++clients_;
  Connection* const key = connection.get();
  connections_.emplace(key, std::move(connection));
  return absl::OkStatus();
}

absl::Status Client::AcceptAll(const UnixListener& listener, Connection::State state) {
  while (true) {
    RINGSIDE_ASSIGN_OR_RETURN(std::optional<UnixListener::Accepted> accepted, listener.Accept());
    if (!accepted.has_value()) return absl::OkStatus();
    RINGSIDE_RETURN_IF_ERROR(Add(std::move(accepted->fd), state));
  }
}

void Client::Drop(Connection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  if (&connection == control_) {
    control_ = nullptr;
    runs_ = false;  // its guest is gone
  }
  if (connection.state == Connection::State::kGreeting ||
      connection.state == Connection::State::kTalking) {
    --clients_;
  }
  connection.fd = UniqueFd();
  gone_.push_back(std::move(found->second));
  connections_.erase(found);
}

// Connections to the guest.

UniqueFd Client::ConnectOne() const {
  const absl::StatusOr<UnixAddress> address = UnixAddress::Of(path_);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string line = "CONNECT " + std::to_string(guest::kVsockServicePort) + "\n";
  if (!address.ok() || connect(fd.get(), address->address(), address->size()) != 0 ||
      send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) {
    return UniqueFd();
  }
  return fd;
}

absl::Status Client::ConnectMissing() {
  const bool connects =
      job_.kind == guest::VsockKind::kEcho || job_.kind == guest::VsockKind::kFlood;
  while (runs_ && connects && report_at_ns_ == 0 && clients_ < job_.connections) {
    UniqueFd fd = ConnectOne();
    if (!fd.valid()) {
      runs_ = false;  // the VMM is gone: its guest gets no report
      return absl::OkStatus();
    }
    RINGSIDE_RETURN_IF_ERROR(Add(std::move(fd), Connection::State::kGreeting));
  }
  return absl::OkStatus();
}

bool Client::SendMessage(Connection& connection) {
  return send(connection.fd.get(), message_.data(), message_.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message_.size());
}

// `size` bytes of "OK PORT\n" have come: nothing comes behind that before the client has spoken.
void Client::Greeted(Connection& connection, size_t size) {
  connection.size += size;
  if (connection.bytes[connection.size - 1] != '\n') {
    if (connection.size == connection.bytes.size()) Drop(connection);
    return;
  }
  ++report_.connections;
  connection.state = Connection::State::kTalking;
  if (job_.kind == guest::VsockKind::kFlood || !SendMessage(connection)) Drop(connection);
}

void Client::TakeEcho(Connection& connection, std::span<const uint8_t> bytes) {
  report_.bytes += bytes.size();
  while (!bytes.empty()) {
    const auto some = std::min<size_t>(bytes.size(), message_.size() - connection.at);
    if (job_.verify != 0 && std::memcmp(bytes.data(), &message_[connection.at], some) != 0) {
      connection.is_right = false;
    }
    connection.at += some;
    bytes = bytes.subspan(some);
    if (connection.at < message_.size()) continue;
    connection.at = 0;
    if (!std::exchange(connection.is_right, true)) ++report_.mismatches;
    if (!bytes.empty()) ++report_.mismatches;  // more than was sent
    if (runs_ && report_at_ns_ == 0 && !SendMessage(connection)) return Drop(connection);
  }
}

// Numbers grow: other streams have those between.
void Client::TakeOut(Connection& connection, std::span<const uint8_t> bytes) {
  report_.bytes += bytes.size();
  if (job_.verify == 0) return;
  for (const uint8_t byte : bytes) {
    const uint64_t at = connection.at;
    connection.at = (at + 1) % job_.message_bytes;
    if (at < guest::kVsockNumberBytes) {
      connection.bytes[at] = static_cast<char>(byte);
    } else if (byte != guest::VsockByte(at, job_.seed)) {
      connection.is_right = false;
    }
    if (connection.at != 0) continue;
    uint64_t number = 0;
    std::memcpy(&number, connection.bytes.data(), sizeof number);
    if (connection.had_message && number <= connection.last_number) connection.is_right = false;
    connection.last_number = number;
    connection.had_message = true;
    if (!std::exchange(connection.is_right, true)) ++report_.mismatches;
  }
}

// Jobs.

void Client::TakeOrder(const guest::VsockOrder& order) {
  if (order.is_over != 0) {
    job_.sent_bytes = order.sent_bytes;
    report_at_ns_ = MonotonicNs() + kLastBytesNs;
    return;
  }
  job_ = order;
  report_ = {};
  report_at_ns_ = 0;
  runs_ = order.message_bytes >= guest::kVsockNumberBytes;
  message_.resize(order.message_bytes);
  for (size_t i = 0; i < message_.size(); ++i) message_[i] = guest::VsockByte(i, order.seed);
}

void Client::ReportWhenDone() {
  if (!runs_ || report_at_ns_ == 0 || control_ == nullptr) return;
  const bool is_out = job_.kind == guest::VsockKind::kOut;
  if (is_out && report_.bytes < job_.sent_bytes && MonotonicNs() < report_at_ns_) return;
  runs_ = false;
  std::vector<Connection*> clients;
  for (const auto& [key, connection] : connections_) {
    if (key != control_ && connection->state != Connection::State::kSink) clients.push_back(key);
  }
  for (Connection* const client : clients) Drop(*client);
  // Which is short, so its socket takes it. A guest that is gone does not hear it.
  (void)send(control_->fd.get(), &report_, sizeof report_, MSG_NOSIGNAL);
  Drop(*control_);
}

// What has come on one connection; sockets are not waited for here.
void Client::Read(Connection& connection) {
  const bool is_short = connection.state == Connection::State::kGreeting ||
                        connection.state == Connection::State::kControl;
  void* const to = is_short ? static_cast<void*>(&connection.bytes[connection.size]) : read_.data();
  const size_t room = is_short ? connection.bytes.size() - connection.size : read_.size();
  const ssize_t size = recv(connection.fd.get(), to, room, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) {
    if (connection.state == Connection::State::kGreeting) ++report_.refused;
    Drop(connection);
    return;
  }
  const std::span<const uint8_t> bytes(read_.data(), static_cast<size_t>(size));
  switch (connection.state) {
    case Connection::State::kGreeting:
      return Greeted(connection, static_cast<size_t>(size));
    case Connection::State::kTalking:
      TakeEcho(connection, bytes);
      break;
    case Connection::State::kSink:
      TakeOut(connection, bytes);
      break;
    case Connection::State::kControl: {
      connection.size += static_cast<size_t>(size);
      guest::VsockOrder order;
      if (connection.size < sizeof order) break;
      std::memcpy(&order, connection.bytes.data(), sizeof order);
      connection.size = 0;
      TakeOrder(order);
      break;
    }
  }
}

absl::Status Client::Run() {
  while (true) {
    std::array<epoll_event, kEventsPerTurn> events;
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, runs_ ? kLookMs : -1);
    if (count < 0 && errno != EINTR) return ErrnoError(errno, "sockets cannot be waited for");
    for (int i = 0; i < count; ++i) {
      void* const what = events[i].data.ptr;
      if (what == &orders_) {
        RINGSIDE_RETURN_IF_ERROR(AcceptAll(orders_, Connection::State::kControl));
      } else if (what == &sinks_) {
        RINGSIDE_RETURN_IF_ERROR(AcceptAll(sinks_, Connection::State::kSink));
      } else if (auto* const connection = static_cast<Connection*>(what); connection->fd.valid()) {
        Read(*connection);
      }
    }
    gone_.clear();
    ReportWhenDone();
    RINGSIDE_RETURN_IF_ERROR(ConnectMissing());
  }
}

absl::Status Main(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(path));
  return client->Run();
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  std::string path;
  CLI::App app("Does the host's part of the jobs of a guest that measures its vsock.",
               "vsock_client");
  app.add_option("--path", path, "the VMM's Unix socket")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ringside::kExitOk : ringside::kExitBadInput;
  }
  const absl::Status status = ringside::Main(path);
  const std::string message(ringside::Message(status));
  std::fprintf(stderr, "vsock_client: %s\n", message.c_str());
  return ringside::ExitCodeOf(status);
}
