#include "agent/guest/agent_options.h"

#include <charconv>
#include <string_view>

namespace ringside {
namespace {

bool ParsePort(std::string_view text, uint32_t& port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

const char kAgentHelp[] = R"(usage: ringside-agent [--port N | --unix PATH] [--init CMD ARG...]

Runs in a guest and does what its host asks for over vsock: commands, copies of files, the clock,
random numbers, a clean end. As PID 1 it is the guest's init, too: it mounts /proc, /sys and /dev
where they are missing, reaps processes, and heeds the power button.

  --port N          listen on this vsock port instead of 5005
  --unix PATH       listen on a Unix socket instead, where clients send "CONNECT <port>" first
                    (for tests)
  --init CMD ARG... run this command beside; it has the agent's input and output
  --help            print this

Examples:
  ringside-agent &
  exec ringside-agent --init /sbin/getty -L ttyS0
  vmlinuz ... init=/usr/lib/ringside/ringside-agent

Exit codes: 0 ended by SIGTERM or SIGINT, 1 failure at run time, 2 bad input.
)";

std::string ParseAgentOptions(int argc, char* const* argv, AgentOptions& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--help" || word == "-h") {
      options.shows_help = true;
    } else if (word != "--port" && word != "--unix" && word != "--init") {
      return "'" + std::string(word) + "' is unknown; try --help";
    } else if (!has_value) {
      return std::string(word) + " needs a value; try --help";
    } else if (word == "--init") {
      options.command = argv + i + 1;
      return {};
    } else if (word == "--unix") {
      options.unix_path = argv[++i];
    } else if (!ParsePort(argv[++i], options.port)) {
      return "--port '" + std::string(argv[i]) + "' is no number of a port, for example 5005";
    }
  }
  return {};
}

}  // namespace ringside
