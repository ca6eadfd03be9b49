// A file that is not there until it is whole: it has no name, or a temporary one where the file
// system cannot do without, so whoever is killed before leaves nothing that looks finished.
//
// Threads: one at a time.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "image/image_file.h"

namespace ringside {

class NewFile {
 public:
  // In the directory of `path`, where nothing may be yet; of mode 0600, as it holds what a guest
  // has written. `what`: as of ImageFile::Open.
  static absl::StatusOr<NewFile> Create(const std::string& path, std::string_view what);
  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&& other) = delete;
  ~NewFile();  // what has no name yet is gone

  ImageFile& file() { return file_; }
  // Gives it its name. FailedPrecondition: somebody else has that meanwhile. `durable`: it is there
  // after a power cut, with all that was written.
  absl::Status Publish(bool durable);

 private:
  NewFile(ImageFile file, std::string temporary);
  absl::Status Link() const;

  ImageFile file_;
  std::string temporary_;  // its name until it has the right one; empty: none
};

// A file is at `path`, or anything else.
absl::Status CheckIsFree(const std::string& path, std::string_view what);
// That the file is called so survives a power cut.
absl::Status FlushName(const std::string& path);

}  // namespace ringside
