// `ringside snapshot`: what a machine was when it was saved, and whether what was saved is whole.
#pragma once

#include <string>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

struct SnapshotOptions {
  std::string directory;
  bool json = false;
};

void AddSnapshotOptions(CLI::App& snapshot, SnapshotOptions& options);
// Exit codes are those of exit_codes.h; a damaged snapshot is bad input.
int SnapshotCommand(const CLI::App& snapshot, const SnapshotOptions& options, LogSink& log);

}  // namespace ringside
