#include "image/digest.h"

#include <algorithm>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<OverlayDigest> DigestOf(const RunSource& runs, Progress& progress) {
  Sha256 sum;
  std::vector<std::byte> buffer(ImageFile::kPiece);
  const std::vector<std::byte> zeroes(ImageFile::kPiece);
  progress.Begin("summing the base", runs.disk_bytes());
  RINGSIDE_RETURN_IF_ERROR(runs.ForEach([&](const Run& run) -> absl::Status {
    for (uint64_t done = 0; done < run.length; done += ImageFile::kPiece) {
      const size_t length = std::min<uint64_t>(run.length - done, ImageFile::kPiece);
      progress.At(run.offset + done);
      if (run.source == nullptr) {
        sum.Update(std::span(zeroes).first(length));
        continue;
      }
      const auto piece = std::span(buffer).first(length);
      RINGSIDE_RETURN_IF_ERROR(run.source->Read(run.at + done, piece));
      sum.Update(piece);
    }
    return absl::OkStatus();
  }));
  return sum.Finish();
}

}  // namespace ringside
