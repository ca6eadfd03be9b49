// Incremental backups: what has changed on an overlay since the last one into a file, and such
// files onto an image.
//
// Threads: one at a time. Errors: as of Chain and DeltaFile; FailedPrecondition, too: a backup does
// not follow what the image is at.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "image/chain.h"
#include "image/delta_file.h"
#include "image/progress.h"

namespace ringside {

struct DiffResult {
  DeltaFile::Contents contents;
  OverlayId point = {}, parent = {};
  BaseIdentity base = {};  // of one that has neither a parent nor all of the disk
  bool is_full = false;
  bool was_there = false;  // an earlier call made it, and was cut off before it could say so
};
// Into `file`, which is not there until it is durable and the overlay is at its point. Killed
// anywhere, the same again finishes it. The bases are needed for a full backup only, which has all
// of the disk; otherwise the first has what differs from the base.
absl::StatusOr<DiffResult> Diff(const Chain::Names& names, bool is_full, const std::string& file,
                                Progress& progress);

struct ApplyOptions {
  std::string image;  // raw, or with bases an overlay
  std::vector<std::string> bases;
  std::vector<std::string> deltas;  // oldest first
  OverlayId onto = {};  // that a raw image is at; zero: as the base, or anywhere for a full backup
  WriteObserver* observer = nullptr;
};
struct ApplyResult {
  OverlayId point = {};  // that the image is at now
  uint64_t data_bytes = 0, zero_bytes = 0;
  size_t applied = 0;  // of the files; those before them the overlay had already
};
// All files are verified, and that each follows the one before, before anything is written. Killed
// anywhere, the same again finishes it. A raw image that is not there is made of a full backup.
absl::StatusOr<ApplyResult> Apply(const ApplyOptions& options, Progress& progress);

}  // namespace ringside
