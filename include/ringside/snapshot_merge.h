// Makes one snapshot of a whole one and the differences that follow each other from there on
// (SaveOptions::difference).
//
// Threads: any. Errors: InvalidArgument where they do not belong together, or one is damaged;
// FailedPrecondition where the directory cannot be written to; else those of the system.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ringside/export.h"

namespace ringside {

// Each is told, on the calling thread, how many bytes are done, and of how many; or is null.
struct MergeProgress {
  std::function<void(uint64_t done, uint64_t of)> verifying;  // anew for each snapshot
  std::function<void(uint64_t done, uint64_t of)> merging;
};

// Writes into the directory `to` as Machine::Save does, and leaves the others as they are. They may
// come in any order, and all have to be used. The result stands for the last of them: what is a
// difference to that is one to it. Whoever is killed meanwhile leaves no snapshot, and it can be
// done again.
RINGSIDE_EXPORT absl::Status MergeSnapshots(const std::vector<std::string>& directories,
                                            const std::string& to,
                                            const MergeProgress& progress = {});

}  // namespace ringside
