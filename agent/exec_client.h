// A command in a guest, as its client has it. It never waits, so that a program can have it in a
// poll loop beside its own descriptors: fd() with events(), then Turn() and Next() until that has
// nothing.
//
// Threads: one at a time. Destroying it ends the command (SIGHUP, then SIGKILL) unless that has
// ended.
#pragma once

#include <optional>
#include <string_view>

#include "agent/agent_channel.h"

namespace ringside {

class ExecClient {
 public:
  // Waits until the command has been started. An error of the program itself, which is not there or
  // cannot be run, sets `of` to kProgram: NotFound, or another code.
  static absl::StatusOr<ExecClient> Start(AgentChannel channel, const ExecMessage& command,
                                          FaultOf& of);

  int fd() const { return channel_.fd(); }
  // For poll. Without `wants_output` nothing is read: the command waits, as if for a full pipe.
  short events(bool wants_output) const;
  // Sends and receives what can be.
  absl::Status Turn(short revents);

  struct Event {
    enum class Kind { kOutput, kErrors, kExit } kind;
    std::string_view data;  // until the next call of Turn
    ExitMessage exit;
  };
  absl::StatusOr<std::optional<Event>> Next();

  // How many bytes of input may be sent now: what the agent has room for.
  size_t input_room() const;
  void SendInput(std::string_view data);  // no more than that
  void EndInput();
  void SendSignal(int number);
  void Resize(TerminalSize size);

 private:
  explicit ExecClient(AgentChannel channel) : channel_(std::move(channel)) {}

  AgentChannel channel_;
  size_t window_ = kStdinWindow;  // bytes that may still be sent
};

}  // namespace ringside
