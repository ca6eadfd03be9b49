#include "base/unix_address.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

#include "base/status.h"

namespace ringside {

absl::StatusOr<UnixAddress> UnixAddress::Of(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == ".." || path.find('\0') != std::string::npos) {
    return BadInput("'%s' is no path of a socket; give the path of a file", path);
  }
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Whoever may pass through a directory and not list it can still use a socket in it.
  if (!directory.valid() && errno == EACCES) {
    directory = UniqueFd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  if (!directory.valid()) {
    return ErrnoError(
        errno, absl::StrFormat("cannot open '%s', the directory of socket '%s'", folder, path),
        "make the directory, or give another path");
  }
  UnixAddress result(std::move(directory), std::move(name));
  std::string fitting = path;
  if (fitting.size() >= sizeof result.address_.sun_path) {
    fitting = absl::StrFormat("/proc/self/fd/%d/%s", result.directory(), result.name());
  }
  if (fitting.size() >= sizeof result.address_.sun_path) {
    return BadInput("the name of socket '%s' is too long; give it one of at most 80 bytes", path);
  }
  fitting.copy(result.address_.sun_path, fitting.size());
  return result;
}

}  // namespace ringside
