#include "tools/trace_file.h"

#include <cerrno>
#include <sys/stat.h>

#include "base/status.h"

namespace ringside {
namespace {

// Whether nothing of another kind would be lost by writing a trace there: no file, an empty one, a
// trace, or what keeps nothing, like a pipe.
bool MayHold(const std::string& path, std::string_view beginning) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return true;  // opening it will tell
  if (S_ISBLK(found.st_mode)) return false;
  if (!S_ISREG(found.st_mode) || found.st_size == 0) return true;
  std::string bytes(beginning.size(), '\0');
  std::ifstream(path).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes == beginning;
}

}  // namespace

absl::StatusOr<TraceFile> TraceFile::Open(const TraceFormat& format, const std::string& path) {
  if (!MayHold(path, format.beginning)) {
    return BadInput("%s '%s' holds something else, which would be lost; give another file",
                    format.option, path);
  }
  TraceFile file(format, path);
  if (file.file_.is_open()) return file;
  const absl::Status status =
      ErrnoError(errno, absl::StrFormat("%s cannot write '%s'", format.option, path));
  return absl::InvalidArgumentError(status.message());
}

bool TraceFile::Finish(const Logger& log) {
  file_.flush();
  if (file_.good()) return true;
  log.Log(Severity::kError, "%s could not write all of '%s'", option_, path_);
  return false;
}

}  // namespace ringside
