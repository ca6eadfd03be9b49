// `ringside snapshot`: what a machine was when it was saved, whether what was saved is whole, and
// one of several that follow each other.
#pragma once

#include <string>
#include <vector>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

struct SnapshotOptions {
  std::vector<std::string> directories;
  std::string to;  // merge
  bool json = false;
};

void AddSnapshotOptions(CLI::App& snapshot, SnapshotOptions& options);
// Exit codes are those of exit_codes.h; a damaged snapshot is bad input.
int SnapshotCommand(const CLI::App& snapshot, const SnapshotOptions& options, LogSink& log);

}  // namespace ringside
