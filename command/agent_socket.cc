#include "command/agent_socket.h"

#include <CLI/CLI.hpp>

#include "agent/agent_message.h"

namespace ringside {

void AddAgentSocket(CLI::App& command, std::string& vsock, uint32_t& port) {
  port = kAgentPort;
  command.add_option("--vsock", vsock, "the Unix socket of the machine's vsock device")
      ->required()
      ->type_name("PATH");
  command.add_option("--port", port, "the vsock port that the agent listens on")
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace ringside
