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
// For a place in a listener's queue: nobody looks after time-outs meanwhile.
constexpr absl::Duration kConnectLimit = absl::Milliseconds(500);

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
          absl::StrFormat("%s: no server listens there; start the server again", what));
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
  // Of connect, which would wait for a server whose backlog is full; sending never waits.
  const timeval limit = absl::ToTimeval(std::min(timeout, kConnectLimit));
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
  const int64_t deadline_ns = MonotonicNs() + timeout_ns_;
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
  if (!answered.WaitFor(absl::Nanoseconds(deadline_ns - MonotonicNs()))) {
    Break(NotAnswered());
    answered.Wait();
  }
  return answer;
}

void VfioUserConnection::Start(VfioUserCommand command, std::span<const std::byte> payload,
                               std::span<const int> fds, std::function<void(Answer)> done) {
  Submit(command, payload, fds,
         {.command = command, .done = std::move(done), .deadline_ns = MonotonicNs() + timeout_ns_});
}

void VfioUserConnection::Submit(VfioUserCommand command, std::span<const std::byte> payload,
                                std::span<const int> fds, Pending pending) {
  absl::Status refused, broken;
  bool is_the_threads = false;
  {
    const MutexLock lock(mutex_);
    const int64_t now_ns = MonotonicNs();
    const absl::StatusOr<uint16_t> id = Add(command, payload, fds, now_ns);
    if (id.ok()) {
      std::swap(pending_[*id], pending);
      broken = now_ns < Deadline() ? writer_.Send(socket_.get()) : Overdue(now_ns);
      is_the_threads = !writer_.empty() || hurry_ns_ != kNever;
    } else {
      refused = id.status();
    }
  }
  if (!refused.ok()) return pending.done(std::move(refused));
  if (!broken.ok()) return Break(std::move(broken));
  if (is_the_threads) wake_.Signal();
}

absl::StatusOr<uint16_t> VfioUserConnection::Add(VfioUserCommand command,
                                                 std::span<const std::byte> payload,
                                                 std::span<const int> fds, int64_t now_ns) {
  if (!broken_.ok()) return broken_;
  if (pending_.size() >= kMostPending) {
    return absl::ResourceExhaustedError("too many commands at once");
  }
  while (pending_.contains(next_id_)) ++next_id_;
  VfioUserHeader header = Header(command, kVfioUserTypeCommand);
  header.id = next_id_;
  RINGSIDE_RETURN_IF_ERROR(writer_.Add(header, VfioUserPayload(payload.begin(), payload.end()), fds,
                                       now_ns + timeout_ns_));
  return next_id_++;
}

absl::Status VfioUserConnection::status() {
  const MutexLock lock(mutex_);
  return broken_;
}

absl::Status VfioUserConnection::NotAnswered() const {
  return absl::UnavailableError(absl::StrFormat(
      "it has not answered for %s", absl::FormatDuration(absl::Nanoseconds(timeout_ns_))));
}

absl::Status VfioUserConnection::Overdue(int64_t now_ns) const {
  if (now_ns >= end_ns_) return absl::UnavailableError("its answers take too long in all");
  if (now_ns >= hurry_ns_) return absl::UnavailableError("there is no more time for its answers");
  if (now_ns < writer_.end_ns()) return NotAnswered();
  return absl::UnavailableError(
      absl::StrFormat("it has not taken what it is sent for %s",
                      absl::FormatDuration(absl::Nanoseconds(timeout_ns_))));
}

int64_t VfioUserConnection::Deadline() const {
  int64_t deadline_ns = std::min(end_ns_, writer_.end_ns());
  if (!pending_.empty() || !writer_.empty()) deadline_ns = std::min(deadline_ns, hurry_ns_);
  for (const auto& [id, pending] : pending_) {
    deadline_ns = std::min(deadline_ns, pending.deadline_ns);
  }
  return deadline_ns;
}

bool VfioUserConnection::BreakIfOver() {
  absl::Status why;
  {
    const MutexLock lock(mutex_);
    if (!broken_.ok()) return false;
    const int64_t now_ns = MonotonicNs();
    if (now_ns < Deadline()) return true;
    why = Overdue(now_ns);
  }
  Break(std::move(why));
  return false;
}

void VfioUserConnection::EndBy(int64_t end_ns) {
  {
    const MutexLock lock(mutex_);
    end_ns_ = end_ns;
  }
  wake_.Signal();
}

void VfioUserConnection::Hurry(int64_t end_ns) {
  {
    const MutexLock lock(mutex_);
    hurry_ns_ = end_ns;
  }
  wake_.Signal();
}

void VfioUserConnection::Break(absl::Status why) {
  std::map<uint16_t, Pending> lost;
  {
    const MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = std::move(why);
    lost.swap(pending_);
    writer_ = VfioUserWriter();
    why = broken_;
  }
  shutdown(socket_.get(), SHUT_RDWR);  // wakes the thread
  for (auto& [id, pending] : lost) pending.done(why);
}

void VfioUserConnection::Run() {
  int64_t again_ns = handler_.Woken(*this);
  while (true) {
    bool is_left;
    int64_t until_ns;
    {
      const MutexLock lock(mutex_);
      is_left = !writer_.empty();
      until_ns = std::min(again_ns, Deadline());
    }
    std::array<pollfd, 2> watched = {
        pollfd{.fd = socket_.get(), .events = static_cast<short>(is_left ? POLLOUT : POLLIN)},
        pollfd{.fd = wake_.fd(), .events = POLLIN}};
    poll(watched.data(), watched.size(), TimeoutMs(until_ns));
    BreakIfOver();  // the socket tells, then
    if (watched[1].revents != 0 || MonotonicNs() >= again_ns) {
      wake_.Clear();
      again_ns = handler_.Woken(*this);
    }
    if (watched[0].revents != 0 && !(is_left ? SendMore() : Read())) break;
  }
  if (!stop_) handler_.Gone(*this, status());
}

bool VfioUserConnection::SendMore() {
  absl::Status sent;
  {
    const MutexLock lock(mutex_);
    if (!broken_.ok()) return false;
    sent = writer_.Send(socket_.get());
  }
  if (sent.ok()) return true;
  Break(std::move(sent));
  return false;
}

bool VfioUserConnection::HasUnsent() {
  const MutexLock lock(mutex_);
  return !writer_.empty();
}

bool VfioUserConnection::Read() {
  // Whoever sends without end must not keep the thread from what it is woken for.
  for (int left = kMessagesAtOnce; left > 0 && !HasUnsent(); --left) {
    if (!BreakIfOver()) return false;
    absl::StatusOr<std::optional<VfioUserMessage>> message = reader_.Receive(socket_.get());
    if (!message.ok()) {
      Break(message.status());
      return false;
    }
    if (!message->has_value()) return true;
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
  absl::Status sent;
  {
    const MutexLock lock(mutex_);
    if (!broken_.ok()) return false;
    sent = writer_.Add(header, *std::move(answer), {}, MonotonicNs() + timeout_ns_);
    if (sent.ok()) sent = writer_.Send(socket_.get());
  }
  if (sent.ok()) return true;
  Break(std::move(sent));
  return false;
}

}  // namespace ringside
