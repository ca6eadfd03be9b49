// What a file is, for people and programs, and whether it is as it should be. Its kind is read off
// its first bytes, which a guest may have chosen of a raw image: so nothing but text hangs on it.
//
// Threads: one at a time. Errors: as of ImageFile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "image/chain.h"
#include "image/delta_file.h"
#include "image/progress.h"

namespace ringside {

enum class ImageKind { kRaw, kOverlay, kBackup };
const char* ImageKindName(ImageKind kind);  // "raw", "overlay", "backup"

// Of an overlay's map.
struct BlockCounts {
  uint64_t here_bytes = 0, zero_bytes = 0;
  uint64_t dirty_bytes = 0;  // changed since its point; without one, all of both
  uint64_t pages = 0, torn_pages = 0, corrupt_pages = 0;
};
absl::StatusOr<BlockCounts> CountBlocks(const OverlayImage& overlay);

struct ImageInfo {
  ImageKind kind = ImageKind::kRaw;
  uint64_t file_bytes = 0;
  uint64_t bytes_on_host = 0;
  uint64_t disk_bytes = 0;
  std::optional<OverlayHeader> overlay;
  BlockCounts blocks;  // of an overlay
  std::optional<DeltaHeader> backup;
};
// While others may be writing it.
absl::StatusOr<ImageInfo> Inspect(const std::string& file);

struct CheckFinding {
  enum class Kind { kFine, kNote, kBad };
  Kind kind;
  std::string text;
};
struct ImageCheck {
  std::string file;
  std::vector<std::string> bases;  // bottom first; none: they are not looked at
  bool digest = false;             // the base's content is compared, too
};
// Everything that can be told of an overlay or a backup. Damage is a finding, and no error.
absl::StatusOr<std::vector<CheckFinding>> CheckImage(const ImageCheck& options, Progress& progress);

}  // namespace ringside
