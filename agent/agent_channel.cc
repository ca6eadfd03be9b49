#include "agent/agent_channel.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "base/poll_until.h"
#include "base/printable.h"
#include "base/status.h"
#include "net/vsock_connect.h"

namespace ringside {
namespace {

constexpr size_t kReadAtOnce = 64 << 10;

absl::Status Gone() {
  return absl::UnavailableError("the agent has closed the connection");
}

bool IsOver(Deadline deadline) {
  return std::chrono::steady_clock::now() >= deadline;
}

absl::Status LimitIsOver(const AgentTime& time) {
  return absl::DeadlineExceededError(
      absl::StrFormat("the agent was not done within %s", absl::FormatDuration(time.limit)));
}

}  // namespace

absl::Status AgentBroke(std::string_view what) {
  return absl::UnavailableError(absl::StrFormat("the agent breaks the protocol: %s", what));
}

absl::Status StatusOfError(const AgentFrame& frame) {
  const std::optional<ErrorMessage> error = DecodeError(frame.payload);
  if (!error) return AgentBroke("a malformed error");
  absl::StatusCode code = absl::ErrnoToStatusCode(std::clamp(error->error, 0, 4095));
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kUnknown;
  return {code, absl::StrFormat("in the guest: %s", Printable(error->text))};
}

absl::StatusOr<AgentChannel> AgentChannel::Connect(const std::string& path, uint32_t port,
                                                   const AgentTime& time) {
  const Deadline deadline = DeadlineIn(time.limit);
  absl::StatusOr<UniqueFd> fd = ConnectVsock(path, port, std::min(time.patience, time.limit));
  if (fd.ok()) return Greet(AgentChannel(*std::move(fd), time, deadline));
  if (!absl::IsUnavailable(fd.status())) return fd.status();
  if (IsOver(deadline)) return LimitIsOver(time);
  return absl::UnavailableError(
      absl::StrFormat("%s; is ringside-agent started there?", Message(fd.status())));
}

absl::StatusOr<AgentChannel> AgentChannel::Greet(UniqueFd socket, const AgentTime& time) {
  return Greet(AgentChannel(std::move(socket), time, DeadlineIn(time.limit)));
}

absl::StatusOr<AgentChannel> AgentChannel::Greet(AgentChannel channel) {
  RINGSIDE_RETURN_IF_ERROR(channel.ExchangeHellos());
  return channel;
}

absl::Status AgentChannel::ExchangeHellos() {
  RINGSIDE_ASSIGN_OR_RETURN(const AgentFrame first, Receive());
  const std::optional<HelloMessage> hello =
      first.type == AgentType::kHello ? DecodeHello(first.payload) : std::nullopt;
  if (!hello) return AgentBroke("its first message is no hello");
  hello_ = *hello;
  Encode(HelloMessage{.capabilities = 0}, out_);
  return absl::OkStatus();
}

// Of a message that is there already the patience is not asked: it is as long as a message is, and
// this process may have slept. The limit is, because messages may come without end.
absl::Status AgentChannel::Wait(short events, Deadline patient_until) const {
  if (IsOver(deadline_)) return LimitIsOver(time_);
  const int ready = PollUntil(fd_.get(), events, std::min(patient_until, deadline_));
  if (ready > 0) return absl::OkStatus();
  if (ready < 0) return ErrnoError(errno, "cannot wait for the agent");
  if (IsOver(deadline_)) return LimitIsOver(time_);
  return absl::UnavailableError(absl::StrFormat("the agent has not answered within %s",
                                                absl::FormatDuration(time_.patience)));
}

absl::Status AgentChannel::Flush() {
  const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) {
    out_.erase(0, static_cast<size_t>(sent));
    return absl::OkStatus();
  }
  if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
  if (errno == EPIPE || errno == ECONNRESET) return Gone();
  return ErrnoError(errno, "cannot send to the agent");
}

absl::Status AgentChannel::FlushAll() {
  const Deadline patient_until = DeadlineIn(time_.patience);
  while (!out_.empty()) {
    RINGSIDE_RETURN_IF_ERROR(Wait(POLLOUT, patient_until));
    RINGSIDE_RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

absl::Status AgentChannel::Fill() {
  in_.erase(0, std::exchange(taken_, 0));
  const size_t before = in_.size();
  in_.resize(before + kReadAtOnce);
  const ssize_t got = recv(fd_.get(), in_.data() + before, kReadAtOnce, MSG_DONTWAIT);
  const int error = errno;
  in_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0 || (got < 0 && error == ECONNRESET)) return Gone();
  if (got > 0 || error == EAGAIN || error == EINTR) return absl::OkStatus();
  return ErrnoError(error, "cannot receive from the agent");
}

absl::StatusOr<std::optional<AgentFrame>> AgentChannel::Next() {
  AgentFrame frame;
  switch (ReadFrame(std::string_view(in_).substr(taken_), frame)) {
    case FrameState::kBroken:
      return AgentBroke("what it sent is no message");
    case FrameState::kPartial:
      return std::nullopt;
    case FrameState::kWhole:
      break;
  }
  taken_ += frame.size();
  return frame;
}

absl::StatusOr<AgentFrame> AgentChannel::Receive() {
  const Deadline patient_until = DeadlineIn(time_.patience);
  for (;;) {
    RINGSIDE_ASSIGN_OR_RETURN(const std::optional<AgentFrame> frame, Next());
    if (frame) return *frame;
    RINGSIDE_RETURN_IF_ERROR(Wait(POLLIN, patient_until));
    RINGSIDE_RETURN_IF_ERROR(Fill());
  }
}

absl::Status AgentChannel::ReceiveDone() {
  RINGSIDE_ASSIGN_OR_RETURN(const AgentFrame frame, Receive());
  if (frame.type == AgentType::kError) return StatusOfError(frame);
  return frame.type == AgentType::kDone ? absl::OkStatus() : AgentBroke("an answer out of order");
}

void AgentChannel::Cancel() const {
  shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace ringside
