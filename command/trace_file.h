// A file that the command fills at its end. It is made before the work begins, so that a wrong path
// is no surprise then, and what an earlier run left in it stays until there is something to replace
// it.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

// What such a file is: the option that names it, and what each begins with.
struct TraceFormat {
  const char* option;
  std::string_view beginning;
};

class TraceFile {
 public:
  // InvalidArgument if it cannot be written, holds anything but such a trace, or is another run's
  // just now.
  static absl::StatusOr<TraceFile> Open(const TraceFormat& format, const std::string& path);

  const std::string& path() const { return path_; }
  // For a file that is written in another way than Write does: open for that, without blocking.
  UniqueFd Take() && { return std::move(fd_); }
  // `fill` replaces what it holds.
  absl::Status Write(const std::function<void(std::ostream&)>& fill) const;

 private:
  TraceFile(const TraceFormat& format, std::string path, UniqueFd fd)
      : option_(format.option), path_(std::move(path)), fd_(std::move(fd)) {}

  const char* option_;
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ringside
