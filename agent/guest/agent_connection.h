// One connection of the agent: its messages, and what it is busy with.
//
// What a client can take up is bounded: a message that it has not sent to its end (kMostExec), a
// window of input for its command, and kMostQueued bytes and one message of what it has not read.
// A client that asks for nothing within ten seconds is told so and closed; one whose requests have
// all been answered may stay, until its place is needed (idle_since_ns).
//
// Threads: the agent's only one. Nothing in here waits for the client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "agent/agent_message.h"
#include "agent/guest/exec_session.h"
#include "agent/tree_reader.h"
#include "agent/tree_writer.h"
#include "base/unique_fd.h"

namespace ringside {

// What connections need of the agent, and ask it for.
struct AgentState {
  rlimit files = {};  // that the agent began with, for commands
  std::optional<ShutDownHow> shut_down;
};

class AgentConnection {
 public:
  // With a greeting the client first sends "CONNECT <port>\n", and gets "OK <port>\n".
  AgentConnection(UniqueFd fd, bool with_greeting, AgentState& agent, int64_t now_ns);

  // Adds what it waits for to `polls`, its own descriptor first.
  void AddPolls(std::vector<pollfd>& polls) const;
  // Does what there is to do, when one of them is ready or the deadline has come. `revents` are
  // those of the first.
  void Turn(short revents, int64_t now_ns);
  std::optional<int64_t> deadline_ns() const;
  // Nothing more is to be done but to forget it; what it still runs is to be taken over.
  bool is_over() const { return is_over_; }
  // Since when nothing has come or gone, if all that was asked for is done; else nothing.
  std::optional<int64_t> idle_since_ns() const;

  ExecSession* session() const { return session_.get(); }
  std::unique_ptr<ExecSession> TakeSession() { return std::move(session_); }

 private:
  enum class State {
    kGreeting,
    kHello,
    kIdle,
    kExec,
    kPut,
    kPutFailed,  // what still comes of the tree is dropped
    kGet,
    kClosing,  // once what is queued has been sent, and the client has gone or had a second to go
  };

  bool WantsInput() const;
  void Read();
  void Write();
  void TakeInput();
  bool TakeGreeting();
  void Take(const AgentFrame& frame);
  void TakeRequest(const AgentFrame& frame);
  void TakeOfCommand(const AgentFrame& frame);
  void TakeOfTree(const AgentFrame& frame);
  void StartCommand(const AgentFrame& frame);
  void StartPut(const AgentFrame& frame);
  void StartGet(const AgentFrame& frame);
  void StepGet();
  void Answer(const AgentFault& fault, FaultOf of = FaultOf::kRequest);
  void Break(std::string_view why);  // the client has broken the rules
  void CloseIfDue(int64_t now_ns);

  UniqueFd fd_;
  AgentState& agent_;
  State state_;
  std::string in_, out_;
  std::unique_ptr<ExecSession> session_;
  std::unique_ptr<TreeWriter> put_;
  std::unique_ptr<TreeReader> get_;
  std::optional<int64_t> ask_by_ns_;    // until the first request is there
  std::optional<int64_t> close_at_ns_;  // once all has been sent
  int64_t last_turn_ns_;
  bool is_over_ = false;
};

}  // namespace ringside
