// Files of incremental backups, written and read. What a file says is treated as an enemy's: memory
// is bounded by a table and a run, and no path stands in it.
//
// Threads: one at a time.
// Errors: InvalidArgument: it is no backup; DataLoss: it is damaged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "image/delta_format.h"
#include "image/image_file.h"
#include "image/progress.h"
#include "image/run.h"

namespace ringside {

class DeltaFile final : public RunSource {
 public:
  static absl::StatusOr<DeltaFile> Open(const std::string& path);
  // Only its header is looked at.
  static absl::StatusOr<DeltaFile> Read(ImageFile file);

  const DeltaHeader& header() const { return header_; }
  const ImageFile& file() const { return file_; }
  const std::string& name() const { return file_.name(); }
  bool is_full() const { return (header_.flags & DeltaHeader::kFull) != 0; }

  struct Contents {
    uint64_t data_bytes = 0, zero_bytes = 0, runs = 0;
  };
  // Everything, with the checksums of all data.
  absl::StatusOr<Contents> Verify(Progress& progress) const;

  uint64_t disk_bytes() const override { return header_.disk_bytes; }
  // Checks all but the data, which is for Verify.
  absl::Status ForEach(const Visit& visit) const override;

 private:
  struct Place;  // where a reader is

  DeltaFile(ImageFile file, const DeltaHeader& header, uint64_t bytes)
      : file_(std::move(file)), header_(header), bytes_(bytes) {}
  absl::Status Damaged(uint64_t at, const char* what) const;
  absl::Status ReadTable(Place& place, DeltaTable& table) const;
  absl::Status CheckRun(const Place& place, const DeltaRun& run) const;
  using VisitDelta = std::function<absl::Status(const DeltaRun& run, uint64_t at)>;
  absl::Status Walk(const VisitDelta& visit) const;

  ImageFile file_;
  DeltaHeader header_;
  uint64_t bytes_;  // of the file
};

// Writes all runs, with their checksums, behind the header, and the header.
absl::StatusOr<DeltaFile::Contents> WriteDelta(const RunSource& runs, DeltaHeader header,
                                               ImageFile& file, Progress& progress);

}  // namespace ringside
