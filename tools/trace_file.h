// A file that a run fills at its end. It is made before the machine runs, so that a wrong path is
// no surprise then.
#pragma once

#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"

namespace ringside {

// What such a file is: the option that names it, and what each begins with.
struct TraceFormat {
  const char* option;
  std::string_view beginning;
};

class TraceFile {
 public:
  // InvalidArgument if it cannot be written, or holds anything but such a trace.
  static absl::StatusOr<TraceFile> Open(const TraceFormat& format, const std::string& path);

  std::ostream& stream() { return file_; }
  // Whether all was written; the log tells if not.
  bool Finish(const Logger& log);

 private:
  TraceFile(const TraceFormat& format, std::string path)
      : option_(format.option), path_(std::move(path)), file_(path_) {}

  const char* option_;
  std::string path_;
  std::ofstream file_;
};

}  // namespace ringside
