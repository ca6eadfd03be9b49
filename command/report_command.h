// `ringside report`: what a file of `ringside run --trace-latency` says.
#pragma once

#include <string>

#include "base/log.h"

namespace ringside {

// As given on the command line.
struct ReportOptions {
  std::string file;
  std::string svg;    // where to draw; empty: nowhere
  bool json = false;  // instead of the table
};

// Returns the exit code; what went wrong is in the log.
int ReportCommand(const ReportOptions& options, LogSink& log);

}  // namespace ringside
