// The agent: its listening socket, its connections, and the processes that end under it.
//
// Threads: one, which Run keeps.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <poll.h>
#include <vector>

#include "agent/guest/agent_connection.h"
#include "agent/guest/guest_init.h"
#include "agent/owned_fd.h"

namespace ringside {

class AgentServer {
 public:
  // `is_init`: this is PID 1. `with_greeting`: see AgentConnection.
  AgentServer(OwnedFd listener, OwnedFd signals, bool with_greeting, bool is_init,
              const rlimit& files);

  // Until it is asked to end and all commands are over, or for ever. Returns the exit code.
  int Run();

 private:
  void Fill();
  int Timeout(int64_t now_ns) const;
  void Accept();
  void TurnConnections(int64_t now_ns);
  void TakeSignals(int64_t now_ns);
  void Reap(int64_t now_ns);
  void KillLost(int64_t now_ns);
  void Lose(std::unique_ptr<ExecSession> session, int64_t now_ns);
  void ShutDown(ShutDownHow how);
  void Leave(int64_t now_ns);
  size_t used() const { return connections_.size() + lost_.size(); }

  OwnedFd listener_;
  OwnedFd signals_;
  const bool with_greeting_;
  const bool is_init_;
  GuestPowerButton button_;
  AgentState state_;
  std::list<AgentConnection> connections_;
  std::list<std::unique_ptr<ExecSession>> lost_;  // whose client has gone: until they have ended
  std::vector<pollfd> polls_;
  bool is_leaving_ = false;
};

}  // namespace ringside
