// `ringside ctl`: the calls of a machine's control socket (api/api_call.h), each as a subcommand.
#pragma once

#include <map>
#include <string>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

// As given on the command line.
struct CtlOptions {
  std::string socket;
  bool json = false;
  bool no_wait = false;
  // By call and field. A configuration's file is the field "FILE".
  std::map<std::string, std::map<std::string, std::string>> fields;
};

// `options` is filled when `ctl` parses, and until then has to stay where it is.
void AddCtlOptions(CLI::App& ctl, CtlOptions& options);
// Makes the call that was named; returns the exit code, what went wrong is in the log.
int CtlCommand(const CLI::App& ctl, const CtlOptions& options, LogSink& log);

}  // namespace ringside
