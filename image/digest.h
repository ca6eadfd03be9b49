// The SHA-256 of all that a chain of images holds, by which a base is known wherever it is.
//
// Threads: one at a time.
#pragma once

#include "absl/status/statusor.h"
#include "image/progress.h"
#include "image/run.h"
#include "overlay/overlay_format.h"

namespace ringside {

// `runs`: of all of the disk.
absl::StatusOr<OverlayDigest> DigestOf(const RunSource& runs, Progress& progress);

}  // namespace ringside
