// What a disk holds, as runs of data and of zeroes: what the tools read from overlays, chains and
// backups, and write to images, overlays and backups.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "image/image_file.h"

namespace ringside {

// Begins at a block of the disk (kOverlayBlock) and ends at one, or with the disk.
struct Run {
  uint64_t offset;  // on the disk
  uint64_t length;
  const ImageFile* source;  // null: zeroes
  uint64_t at;              // of the data, in the source
};

class RunSource {
 public:
  using Visit = std::function<absl::Status(const Run&)>;

  virtual ~RunSource() = default;
  virtual uint64_t disk_bytes() const = 0;
  // All runs, by ascending offset, until a visit fails. May be called several times.
  virtual absl::Status ForEach(const Visit& visit) const = 0;
};

}  // namespace ringside
