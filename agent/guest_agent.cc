#include "ringside/guest_agent.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "agent/client.h"
#include "agent/exec_client.h"
#include "agent/tree_reader.h"
#include "agent/tree_writer.h"
#include "base/poll_until.h"
#include "base/random.h"
#include "base/status.h"

namespace ringside {
namespace {

static_assert(GuestAgent::kPort == kAgentPort);
constexpr size_t kRandomBytes = 256;  // of 8 bits each

// It points into the command.
ExecMessage MessageOf(const GuestCommand& command) {
  ExecMessage message = {.uid = command.uid, .gid = command.gid, .directory = command.directory};
  message.arguments.assign(command.arguments.begin(), command.arguments.end());
  message.environment.assign(command.environment.begin(), command.environment.end());
  return message;
}

absl::Status CheckCommand(const GuestCommand& command) {
  if (command.arguments.empty()) return BadInput("the command is empty; name a program");
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (std::ranges::any_of(command.arguments, has_nul) ||
      std::ranges::any_of(command.environment, has_nul) || has_nul(command.directory)) {
    return BadInput("the command has a NUL character in it");
  }
  for (const std::string& variable : command.environment) {
    if (variable.find('=') == std::string::npos || variable.starts_with('=')) {
      return BadInput("environment '%s' is not NAME=VALUE", variable);
    }
  }
  return absl::OkStatus();
}

// A command that runs.
class Running {
 public:
  Running(ExecClient client, const GuestCommand& command, Deadline deadline)
      : client_(std::move(client)), command_(command), deadline_(deadline) {}

  absl::StatusOr<GuestCommandEnd> Finish() {
    for (;;) {
      RINGSIDE_ASSIGN_OR_RETURN(const bool has_ended, TakeEvents());
      if (has_ended) return std::move(end_);
      // Not only when there is nothing to read: it may talk on.
      if (std::chrono::steady_clock::now() >= deadline_) {
        end_.how = GuestCommandEnd::How::kTimedOut;
        return std::move(end_);
      }
      SendInput();
      RINGSIDE_ASSIGN_OR_RETURN(const short ready, Wait());
      RINGSIDE_RETURN_IF_ERROR(client_.Turn(ready));
    }
  }

 private:
  absl::StatusOr<bool> TakeEvents() {
    for (;;) {
      RINGSIDE_ASSIGN_OR_RETURN(const std::optional<ExecClient::Event> event, client_.Next());
      if (!event) return false;
      switch (event->kind) {
        case ExecClient::Event::Kind::kOutput:
          Keep(event->data, end_.output);
          break;
        case ExecClient::Event::Kind::kErrors:
          Keep(event->data, end_.errors);
          break;
        case ExecClient::Event::Kind::kExit:
          end_.code = static_cast<int>(event->exit.code);
          end_.signal = static_cast<int>(event->exit.signal);
          if (end_.signal != 0) end_.how = GuestCommandEnd::How::kKilled;
          return true;
      }
    }
  }

  void Keep(std::string_view data, std::string& kept) {
    const size_t room = command_.most_output - kept.size();
    end_.was_cut |= data.size() > room;
    kept.append(data.substr(0, room));
  }

  void SendInput() {
    const std::string_view rest = std::string_view(command_.input).substr(sent_);
    const std::string_view some = rest.substr(0, client_.input_room());
    if (!some.empty()) client_.SendInput(some);
    sent_ += some.size();
    if (sent_ == command_.input.size() && !std::exchange(input_ended_, true)) client_.EndInput();
  }

  // 0: the time is over.
  absl::StatusOr<short> Wait() const {
    pollfd watched = {.fd = client_.fd(), .events = client_.events(true), .revents = 0};
    if (PollUntil(watched, deadline_) >= 0) return watched.revents;
    return ErrnoError(errno, "cannot wait for the command");
  }

  ExecClient client_;
  const GuestCommand& command_;
  const Deadline deadline_;
  GuestCommandEnd end_;
  size_t sent_ = 0;  // bytes of the input
  bool input_ended_ = false;
};

}  // namespace

absl::StatusOr<AgentClient> GuestAgent::Connect(absl::Duration limit) const {
  return AgentClient::Connect(vsock_, port_, {.patience = patience_, .limit = limit});
}

absl::StatusOr<GuestAgentVersion> GuestAgent::Ping() const {
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect());
  RINGSIDE_RETURN_IF_ERROR(client.Ping());
  return GuestAgentVersion{.protocol = client.hello().version,
                           .capabilities = client.hello().capabilities};
}

absl::StatusOr<GuestCommandEnd> GuestAgent::Exec(const GuestCommand& command) const {
  RINGSIDE_RETURN_IF_ERROR(CheckCommand(command));
  RINGSIDE_ASSIGN_OR_RETURN(
      AgentChannel channel,
      AgentChannel::Connect(vsock_, port_, {.patience = patience_, .limit = command.limit}));
  const Deadline deadline = channel.deadline();
  FaultOf of = FaultOf::kRequest;
  RINGSIDE_ASSIGN_OR_RETURN(ExecClient client,
                            ExecClient::Start(std::move(channel), MessageOf(command), of));
  return Running(std::move(client), command, deadline).Finish();
}

absl::Status GuestAgent::CopyIn(const std::string& from, const std::string& to, bool directories,
                                absl::Duration limit) const {
  TreeReader tree;
  tree.Open(from, directories);
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect(limit));
  return client.Put(tree, to, [](uint64_t /*done*/, uint64_t /*size*/) {});
}

absl::Status GuestAgent::CopyOut(const std::string& from, const std::string& to, bool directories,
                                 absl::Duration limit, uint64_t most_bytes) const {
  TreeWriter tree;
  RINGSIDE_RETURN_IF_ERROR(StatusOfFault(tree.OpenToGet(to, from, directories, most_bytes)));
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect(limit));
  return client.Get(from, directories,
                    [&](const AgentFrame& frame) { return StatusOfFault(tree.Take(frame)); });
}

absl::Status GuestAgent::SetClock(absl::Time now) const {
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect());
  return client.SetClock(now);
}

absl::Status GuestAgent::RenewRandomness() const {
  std::array<char, kRandomBytes> bytes;
  RINGSIDE_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(bytes))));
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect());
  return client.AddEntropy({bytes.data(), bytes.size()});
}

absl::Status GuestAgent::ShutDown(bool reboot) const {
  RINGSIDE_ASSIGN_OR_RETURN(AgentClient client, Connect());
  return client.ShutDown(reboot ? ShutDownHow::kReboot : ShutDownHow::kPowerOff);
}

}  // namespace ringside
