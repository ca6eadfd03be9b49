// `ringside cp`: files and directories into a guest and out of it, by the agent there.
#pragma once

#include <string>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

// As given on the command line.
struct CpOptions {
  std::string vsock;
  uint32_t port = 0;
  bool with_directories = false;
  std::string source;
  std::string target;
};

void AddCpOptions(CLI::App& cp, CpOptions& options);
// Returns an exit code of exit_codes.h.
int CpCommand(const CpOptions& options, LogSink& log);

}  // namespace ringside
