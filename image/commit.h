// Writing an overlay into what it stands on, and writing a chain out as one image.
//
// Threads: one at a time. Errors: as of Chain.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "image/chain.h"
#include "image/progress.h"

namespace ringside {

struct CommitResult {
  uint64_t data_bytes = 0;  // written to the base
  uint64_t zero_bytes = 0;  // given back there
  bool was_resumed = false;
};

// For records of what is written.
struct CommitObservers {
  WriteObserver* top = nullptr;
  WriteObserver* base = nullptr;
};

// Afterwards the overlay is empty, and its base holds what it held. Killed anywhere, it is
// repeated: until the base has everything durably, the overlay hides what is new in the base, as it
// has all of that itself, and says that nobody else may use the two. Backups begin anew after it.
absl::StatusOr<CommitResult> Commit(const Chain::Names& names, Progress& progress,
                                    const CommitObservers& observers = {});

struct FlattenResult {
  uint64_t disk_bytes = 0;
  uint64_t bytes_on_host = 0;
};

// A raw image with holes, which is not there until it is whole.
absl::StatusOr<FlattenResult> Flatten(const Chain::Names& names, const std::string& image,
                                      Progress& progress);

}  // namespace ringside
