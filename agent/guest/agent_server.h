// The agent: its listening socket, its connections, and the processes that end under it.
//
// Threads: one, which Run keeps.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <poll.h>
#include <vector>

#include "agent/guest/agent_connection.h"
#include "agent/guest/guest_init.h"
#include "base/unique_fd.h"

namespace ringside {

class AgentServer {
 public:
  // `is_init`: this is PID 1. `with_greeting`: see AgentConnection.
  AgentServer(UniqueFd listener, UniqueFd signals, bool with_greeting, bool is_init,
              const rlimit& files);

  // Until it is asked to end and all commands are over, or for ever. Returns the exit code.
  int Run();

 private:
  void Fill();
  int Timeout(int64_t now_ns) const;
  void Accept(int64_t now_ns);
  bool DropIdle();
  void TurnConnections(int64_t now_ns);
  void TakeSignals(int64_t now_ns);
  void Reap(int64_t now_ns);
  void KillLost(int64_t now_ns);
  void Lose(std::unique_ptr<ExecSession> session, int64_t now_ns);
  void ShutDown(ShutDownHow how);
  void Leave(int64_t now_ns);
  size_t used() const { return connections_.size() + lost_.size(); }

  UniqueFd listener_;
  UniqueFd signals_;
  const bool with_greeting_;
  const bool is_init_;
  GuestPowerButton button_;
  AgentState state_;
  std::list<AgentConnection> connections_;
  std::list<std::unique_ptr<ExecSession>> lost_;  // whose client has gone: until they have ended
  // What is waited for: the agent's own, and then each connection's, which begin at `places_`. No
  // more than there are descriptors: with more than may be open, poll fails.
  std::vector<pollfd> polls_;
  std::vector<size_t> places_;
  std::optional<int64_t> accept_at_ns_;  // not before, for want of descriptors
  bool is_leaving_ = false;
};

}  // namespace ringside
