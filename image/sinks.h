// Writing what a disk holds, or what has changed of it, onto an image.
//
// Threads: one at a time. What is written is durable only after a flush, unless said.
#pragma once

#include "absl/status/status.h"
#include "image/overlay_image.h"
#include "image/progress.h"
#include "image/run.h"

namespace ringside {

// `is_new`: the image is a hole all over, so zeroes need not be written. Otherwise, if it fails on
// the way or is cut off, the same again writes the same.
absl::Status WriteToRaw(const RunSource& runs, ImageFile& image, bool is_new, Progress& progress);

// Onto an overlay that is being written to: between OverlayImage::BeginWriting, with a flag that
// keeps everybody else away, and EndWriting, which makes it durable. So there is no order in what
// comes in between; cut off anywhere, the same again writes all of it. `dirty`: its next backup is
// to have these blocks.
absl::Status WriteToOverlay(const RunSource& runs, OverlayImage& overlay, bool dirty,
                            Progress& progress);

}  // namespace ringside
