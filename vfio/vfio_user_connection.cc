#include "vfio/vfio_user_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

namespace ringside {
namespace {

// Far more than one has under way at a time.
constexpr size_t kMostPending = 1024;
constexpr int kMessagesAtOnce = 64;
// For room in a socket, and in a listener's queue: nobody looks after time-outs meanwhile.
constexpr absl::Duration kSendLimit = absl::Milliseconds(500);

absl::Status ConnectError(int error, const std::string& path) {
  const std::string what = absl::StrFormat("cannot connect to vfio-user socket '%s'", path);
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return BadInput("'%s' is no socket; give the one a vfio-user server listens on%s", path,
                    S_ISDIR(file.st_mode) ? ", such as 'cntrl' in SPDK's directory" : "");
  }
  switch (error) {
    case ENOENT:
      return ErrnoError(error, what, "start the server, or give its path");
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrFormat("%s: nobody listens there; start the server that made it anew", what));
    case EACCES:
    case EPERM:
      return ErrnoError(error, what, "run as the server's user, or change the socket's owner");
    case EAGAIN:
      return absl::UnavailableError(absl::StrFormat("%s: its server has another client", what));
    default:
      return ErrnoError(error, what);
  }
}

absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path, absl::Duration timeout) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) {
    return BadInput("the path of vfio-user socket '%s' is too long; Unix sockets have %d bytes",
                    path, sizeof address.sun_path - 1);
  }
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, "cannot make a socket");
  // Also of connect, which would wait for a server whose backlog is full.
  const timeval limit = absl::ToTimeval(std::min(timeout, kSendLimit));
  if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
    return ErrnoError(errno, "cannot set a socket's time-out");
  }
  int result;
  do {
    result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ConnectError(errno, path);
  return fd;
}

int TimeoutMs(int64_t until_ns) {
  if (until_ns == VfioUserConnection::kNever) return -1;
  const int64_t left_ns = std::max<int64_t>(0, until_ns - MonotonicNs());
  return static_cast<int>(left_ns / 1'000'000 + 1);
}

VfioUserHeader Header(VfioUserCommand command, uint32_t flags) {
  return {.command = static_cast<uint16_t>(command), .flags = flags};
}

}  // namespace

absl::StatusOr<std::shared_ptr<VfioUserConnection>> VfioUserConnection::Connect(
    const std::string& path, absl::Duration timeout, Handler& handler, const EventFd& wake) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd socket, ConnectSocket(path, timeout));
  std::shared_ptr<VfioUserConnection> connection(
      new VfioUserConnection(timeout, std::move(socket), handler, wake));
  RINGSIDE_ASSIGN_OR_RETURN(connection->thread_,
                            StartThread("vfio-user", [self = connection.get()] { self->Run(); }));
  return connection;
}

VfioUserConnection::~VfioUserConnection() {
  if (!thread_.joinable()) return;
  stop_ = true;
  Break(absl::CancelledError("it is not needed any more"));
  thread_.join();
}

VfioUserConnection::Answer VfioUserConnection::Call(VfioUserCommand command,
                                                    std::span<const std::byte> payload,
                                                    std::span<const int> fds) {
  Event answered;
  Answer answer;
  Submit(command, payload, fds,
         {.command = command,
          .done =
              [&](Answer got) {
                answer = std::move(got);
                answered.Notify();
              },
          .deadline_ns = kNever});
  if (!answered.WaitFor(absl::Nanoseconds(timeout_ns_.load(std::memory_order_relaxed)))) {
    BreakOverdue();
    answered.Wait();
  }
  return answer;
}

void VfioUserConnection::Start(VfioUserCommand command, std::span<const std::byte> payload,
                               std::span<const int> fds, std::function<void(Answer)> done) {
  Submit(command, payload, fds,
         {.command = command,
          .done = std::move(done),
          .deadline_ns = MonotonicNs() + timeout_ns_.load(std::memory_order_relaxed)});
}

void VfioUserConnection::Submit(VfioUserCommand command, std::span<const std::byte> payload,
                                std::span<const int> fds, Pending pending) {
  VfioUserHeader header = Header(command, kVfioUserTypeCommand);
  absl::Status broken;
  {
    const MutexLock lock(mutex_);
    broken = broken_;
    if (broken.ok() && pending_.size() >= kMostPending) {
      broken = absl::ResourceExhaustedError("too many commands at once");
    }
    if (broken.ok()) {
      while (pending_.contains(next_id_)) ++next_id_;
      header.id = next_id_++;
      std::swap(pending_[header.id], pending);
    }
  }
  if (!broken.ok()) {
    pending.done(std::move(broken));
    return;
  }
  if (absl::Status status = Send(header, payload, fds); !status.ok()) Break(std::move(status));
}

absl::Status VfioUserConnection::status() {
  const MutexLock lock(mutex_);
  return broken_;
}

void VfioUserConnection::BreakOverdue() {
  if (MonotonicNs() >= end_ns_.load(std::memory_order_relaxed)) {
    return Break(absl::UnavailableError("its answers take too long in all"));
  }
  const absl::Duration timeout = absl::Nanoseconds(timeout_ns_.load(std::memory_order_relaxed));
  Break(absl::UnavailableError(
      absl::StrFormat("it has not answered for %s", absl::FormatDuration(timeout))));
}

void VfioUserConnection::EndBy(int64_t end_ns) {
  end_ns_.store(end_ns, std::memory_order_relaxed);
  wake_.Signal();
}

void VfioUserConnection::Hurry(absl::Duration limit) {
  const int64_t limit_ns = absl::ToInt64Nanoseconds(limit);
  timeout_ns_.store(std::min(timeout_ns_.load(std::memory_order_relaxed), limit_ns),
                    std::memory_order_relaxed);
  const int64_t now_ns = MonotonicNs();
  {
    const MutexLock lock(mutex_);
    for (auto& [id, pending] : pending_) {
      pending.deadline_ns = std::min(pending.deadline_ns, now_ns + limit_ns);
    }
  }
  wake_.Signal();
}

absl::Status VfioUserConnection::Send(const VfioUserHeader& header,
                                      std::span<const std::byte> payload,
                                      std::span<const int> fds) {
  const MutexLock lock(send_mutex_);
  return SendVfioUserMessage(socket_.get(), header, payload, fds);
}

void VfioUserConnection::Break(absl::Status why) {
  std::map<uint16_t, Pending> lost;
  {
    const MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = std::move(why);
    lost.swap(pending_);
    why = broken_;
  }
  shutdown(socket_.get(), SHUT_RDWR);  // wakes the thread
  for (auto& [id, pending] : lost) pending.done(why);
}

void VfioUserConnection::Run() {
  int64_t again_ns = handler_.Woken(*this);
  while (true) {
    std::array<pollfd, 2> watched = {pollfd{.fd = socket_.get(), .events = POLLIN},
                                     pollfd{.fd = wake_.fd(), .events = POLLIN}};
    poll(watched.data(), watched.size(), TimeoutMs(std::min(again_ns, Deadline())));
    const int64_t now_ns = MonotonicNs();
    if (now_ns >= Deadline()) BreakOverdue();
    if (watched[1].revents != 0 || now_ns >= again_ns) {
      wake_.Clear();
      again_ns = handler_.Woken(*this);
    }
    if (watched[0].revents != 0 && !Read()) break;
  }
  if (!stop_) handler_.Gone(*this, status());
}

int64_t VfioUserConnection::Deadline() {
  const MutexLock lock(mutex_);
  int64_t deadline_ns = end_ns_.load(std::memory_order_relaxed);
  for (const auto& [id, pending] : pending_) {
    deadline_ns = std::min(deadline_ns, pending.deadline_ns);
  }
  return deadline_ns;
}

bool VfioUserConnection::Read() {
  // Whoever sends without end must not keep the thread from what it is woken for.
  for (int left = kMessagesAtOnce; left > 0; --left) {
    absl::StatusOr<std::optional<VfioUserMessage>> message = reader_.Receive(socket_.get());
    if (!message.ok()) {
      Break(message.status());
      return false;
    }
    if (!message->has_value()) return status().ok();
    if (!TakeMessage(**std::move(message))) return false;
  }
  return true;
}

bool VfioUserConnection::TakeMessage(VfioUserMessage message) {
  if (!message.is_reply()) return TakeCommand(message);
  std::optional<Pending> pending;
  {
    const MutexLock lock(mutex_);
    const auto found = pending_.find(message.header.id);
    if (found != pending_.end() &&
        static_cast<uint16_t>(found->second.command) == message.header.command) {
      pending = std::move(found->second);
      pending_.erase(found);
    }
  }
  if (!pending) {
    Break(absl::UnavailableError(
        absl::StrFormat("it answered command %d, which nobody sent", message.header.command)));
    return false;
  }
  if ((message.header.flags & kVfioUserError) != 0) {
    const int error = static_cast<int>(message.header.error);
    pending->done(ErrnoError(error > 0 && error < 4096 ? error : EIO, "it answers"));
  } else {
    pending->done(std::move(message));
  }
  return true;
}

bool VfioUserConnection::TakeCommand(const VfioUserMessage& command) {
  const auto type = static_cast<VfioUserCommand>(command.header.command);
  absl::StatusOr<VfioUserPayload> answer = handler_.Serve(command);
  if ((command.header.flags & kVfioUserNoReply) != 0) return true;
  VfioUserHeader header = Header(type, kVfioUserTypeReply);
  header.id = command.header.id;
  if (!answer.ok()) {
    header.flags |= kVfioUserError;
    header.error = absl::IsUnimplemented(answer.status()) ? ENOSYS : EINVAL;
    answer.emplace();
  }
  const absl::Status status = Send(header, *answer, {});
  if (status.ok()) return true;
  Break(status);
  return false;
}

}  // namespace ringside
