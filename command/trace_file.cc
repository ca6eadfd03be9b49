#include "command/trace_file.h"

#include <cerrno>
#include <ext/stdio_filebuf.h>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bad_input_errno.h"
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

// O_NONBLOCK: a FIFO that nobody reads must not hold up the start.
absl::StatusOr<TraceFile> TraceFile::Open(const TraceFormat& format, const std::string& path) {
  if (!MayHold(path, format.beginning)) {
    return BadInput("%s '%s' holds something else, which would be lost; give another file",
                    format.option, path);
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(open(path.c_str(), kFlags, 0666));
  if (!fd.valid()) {
    const int error = errno;
    return BadInputErrno(error, absl::StrFormat("%s cannot write '%s'", format.option, path),
                         error == ENXIO ? "start first what reads it" : "");
  }
  struct stat info;
  const bool is_file = fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
  if (is_file && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return BadInput("%s '%s' is already given to something that runs; give another file",
                    format.option, path);
  }
  return TraceFile(format, path, std::move(fd));
}

absl::Status TraceFile::Write(const std::function<void(std::ostream&)>& fill) const {
  // Whoever reads a pipe may take time; what cannot be cut short, like a pipe, has nothing to lose.
  fcntl(fd_.get(), F_SETFL, 0);
  [[maybe_unused]] const int cut = ftruncate(fd_.get(), 0);
  __gnu_cxx::stdio_filebuf<char> buffer(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0), std::ios::out);
  std::ostream stream(&buffer);
  fill(stream);
  stream.flush();
  if (stream.good()) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s could not write all of '%s'", option_, path_));
}

}  // namespace ringside
