#include "agent/exec_client.h"

#include <algorithm>
#include <poll.h>

#include "base/status.h"

namespace ringside {

absl::StatusOr<ExecClient> ExecClient::Start(AgentChannel channel, const ExecMessage& command,
                                             FaultOf& of) {
  of = FaultOf::kRequest;
  if (!Fits(command)) {
    return BadInput("the command and its environment have more than %d bytes", kMostExec);
  }
  Encode(command, channel.out());
  RINGSIDE_RETURN_IF_ERROR(channel.FlushAll());
  RINGSIDE_ASSIGN_OR_RETURN(const AgentFrame frame, channel.Receive());
  if (frame.type == AgentType::kError) {
    if (const auto error = DecodeError(frame.payload)) of = error->of;
    return StatusOfError(frame);
  }
  if (frame.type != AgentType::kStarted || !DecodeNumber(frame.payload)) {
    return AgentBroke("an answer out of order");
  }
  return ExecClient(std::move(channel));
}

short ExecClient::events(bool wants_output) const {
  return static_cast<short>((wants_output ? POLLIN : 0) | (channel_.has_out() ? POLLOUT : 0));
}

absl::Status ExecClient::Turn(short revents) {
  if (channel_.has_out()) {
    // An agent that takes no more may have told how the command ended: that, and what the command
    // has said, is still to be read, at any time. If it has not, who reads to the end finds that.
    const absl::Status sent = channel_.Flush();
    if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
    if (!sent.ok()) channel_.out().clear();
  }
  return (revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? channel_.Fill() : absl::OkStatus();
}

absl::StatusOr<std::optional<ExecClient::Event>> ExecClient::Next() {
  for (;;) {
    RINGSIDE_ASSIGN_OR_RETURN(const std::optional<AgentFrame> frame, channel_.Next());
    if (!frame) return std::nullopt;
    switch (frame->type) {
      case AgentType::kStdout:
        return Event{.kind = Event::Kind::kOutput, .data = frame->payload, .exit = {}};
      case AgentType::kStderr:
        return Event{.kind = Event::Kind::kErrors, .data = frame->payload, .exit = {}};
      case AgentType::kExit: {
        const std::optional<ExitMessage> exit = DecodeExit(frame->payload);
        if (!exit) return AgentBroke("a malformed exit");
        return Event{.kind = Event::Kind::kExit, .data = {}, .exit = *exit};
      }
      case AgentType::kStdinTaken: {
        const std::optional<uint32_t> taken = DecodeNumber(frame->payload);
        if (!taken || *taken > kStdinWindow - window_) return AgentBroke("a malformed window");
        window_ += *taken;
        break;
      }
      case AgentType::kError:
        return StatusOfError(*frame);
      default:
        return AgentBroke("a message out of order");
    }
  }
}

size_t ExecClient::input_room() const {
  return channel_.has_out() ? 0 : std::min(window_, kMostData);
}

void ExecClient::SendInput(std::string_view data) {
  window_ -= data.size();
  AppendFrame(AgentType::kStdin, data, channel_.out());
}

void ExecClient::EndInput() {
  AppendFrame(AgentType::kStdinEnd, {}, channel_.out());
}

void ExecClient::SendSignal(int number) {
  EncodeNumber(AgentType::kSignal, static_cast<uint32_t>(number), channel_.out());
}

void ExecClient::Resize(TerminalSize size) {
  Encode(size, channel_.out());
}

}  // namespace ringside
