// Where the agent of a guest is found: what the commands that talk to it have in common.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace ringside {

// Adds --vsock and --port. The variables outlive the command's parsing.
void AddAgentSocket(CLI::App& command, std::string& vsock, uint32_t& port);

}  // namespace ringside
