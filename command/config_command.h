// `ringside config`: what configurations can say, for programs and for documents.
#pragma once

#include "base/log.h"

namespace ringside {

// As given on the command line: one of them.
struct ConfigCommandOptions {
  bool schema = false;
  bool markdown = false;
  bool metrics = false;
};

// Returns the exit code; what went wrong is in the log.
int ConfigCommand(const ConfigCommandOptions& options, LogSink& log);

}  // namespace ringside
