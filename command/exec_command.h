// `ringside exec`: a command in a guest, by the agent there, as if it ran here.
#pragma once

#include <string>
#include <vector>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

// As given on the command line.
struct ExecOptions {
  std::string vsock;
  uint32_t port = 0;
  bool terminal = false;
  bool interactive = false;
  std::vector<std::string> environment;
  std::string directory;
  std::string user;
  std::vector<std::string> command;
};

// The exit code of what fails in `ringside exec` itself, so that it is told from the command's own.
inline constexpr int kExitExecFailed = 125;

void AddExecOptions(CLI::App& exec, ExecOptions& options);
// Returns the command's exit code, 128 + n if signal n ended it, 126 or 127 if it cannot be run or
// is not there, or kExitExecFailed.
int ExecCommand(const ExecOptions& options, LogSink& log);

}  // namespace ringside
