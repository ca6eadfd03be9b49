// `ringside config`: what configurations and clients can say, for programs and for documents.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/log.h"

namespace ringside {

// Something that it prints.
struct ConfigDocument {
  const char* flag;  // "--schema"
  const char* doc;
  std::string (*make)();
};
std::span<const ConfigDocument> ConfigDocuments();

// `flags`: those that were given, which should be one. Returns the exit code; what went wrong is in
// the log.
int ConfigCommand(const std::vector<std::string>& flags, LogSink& log);

}  // namespace ringside
