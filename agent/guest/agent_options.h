// The agent's command line.
#pragma once

#include <cstdint>
#include <string>

#include "agent/agent_message.h"

namespace ringside {

struct AgentOptions {
  uint32_t port = kAgentPort;
  const char* unix_path = nullptr;  // instead of vsock
  char* const* command = nullptr;   // of --init, which is run first; ended by null
  bool shows_help = false;
};

// Returns what is wrong; empty: nothing.
std::string ParseAgentOptions(int argc, char* const* argv, AgentOptions& options);
extern const char kAgentHelp[];

}  // namespace ringside
