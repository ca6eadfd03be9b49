// Making images, and giving an overlay another base.
//
// Threads: one at a time. Errors: as of Chain and NewFile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "image/chain.h"
#include "image/progress.h"

namespace ringside {

enum class Preallocation {
  kOff,
  kFalloc,  // the file system keeps the space
  kFull,    // and it has been written once
};

struct CreateOptions {
  std::string file;
  uint64_t size = 0;               // bytes; 0: as the base
  std::vector<std::string> bases;  // bottom first; none: a raw image
  Preallocation preallocation = Preallocation::kOff;
  bool digest = false;   // the overlay is to know its base by its digest, too
  bool durable = false;  // it is there after a power cut; else its first flush makes it so
};

struct CreateResult {
  uint64_t size = 0;
  std::optional<OverlayId> id;  // of an overlay
  std::optional<OverlayDigest> digest;
};
// The file is not there until it is whole.
absl::StatusOr<CreateResult> CreateImage(const CreateOptions& options, Progress& progress);

struct RebaseResult {
  bool was_the_same = false;   // only its path may be another
  bool digest_agrees = false;  // it was compared
};
// The overlay takes what stands on these names for its base. Of the same size, and with the digest
// that the overlay has of its base; `unsafe`: whatever it holds.
absl::StatusOr<RebaseResult> Rebase(const Chain::Names& names, bool unsafe, Progress& progress);

}  // namespace ringside
