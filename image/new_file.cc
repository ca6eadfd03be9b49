#include "image/new_file.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/status.h"
#include "block/file_lock.h"
#include "overlay/overlay_file.h"

namespace ringside {
namespace {

constexpr mode_t kMode = 0600;

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string ProcPath(int fd) {
  return absl::StrFormat("/proc/self/fd/%d", fd);
}

absl::Status IsThere(const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is there already; give another path, or remove it", name));
}

absl::Status CannotMake(int error, const std::string& name) {
  absl::Status status =
      ErrnoError(error, "cannot make " + name, "its directory must be there and writable");
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(status.message());
    default:
      return status;
  }
}

}  // namespace

absl::Status CheckIsFree(const std::string& path, std::string_view what) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) return IsThere(absl::StrFormat("%s '%s'", what, path));
  return absl::OkStatus();
}

absl::Status FlushName(const std::string& path) {
  const int error = FlushDirectoryOf(path);
  if (error == 0) return absl::OkStatus();
  return ErrnoError(-error, absl::StrFormat("cannot flush the directory of '%s'", path));
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path, std::string_view what) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsFree(path, what));
  const std::string name = absl::StrFormat("%s '%s'", what, path);
  UniqueFd fd(open(DirectoryOf(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
  std::string temporary;
  // A kernel or a file system without O_TMPFILE takes it for an open of the directory.
  if (!fd.valid() && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    temporary = path + ".XXXXXX";
    fd = UniqueFd(mkostemp(temporary.data(), O_CLOEXEC));
  }
  if (!fd.valid()) return CannotMake(errno, name);
  // Kept once it has a name, for as long as it is open.
  RINGSIDE_RETURN_IF_ERROR(LockFile(fd.get(), false, name));
  return NewFile(ImageFile(std::move(fd), path, what), std::move(temporary));
}

NewFile::NewFile(ImageFile file, std::string temporary)
    : file_(std::move(file)), temporary_(std::move(temporary)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status NewFile::Link() const {
  const char* const path = file_.path().c_str();
  const bool is_there = temporary_.empty() ? linkat(AT_FDCWD, ProcPath(file_.fd()).c_str(),
                                                    AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0
                                           : link(temporary_.c_str(), path) == 0;
  if (is_there) return absl::OkStatus();
  return errno == EEXIST ? IsThere(file_.name()) : CannotMake(errno, file_.name());
}

absl::Status NewFile::Publish(bool durable) {
  if (durable) RINGSIDE_RETURN_IF_ERROR(file_.Flush());
  RINGSIDE_RETURN_IF_ERROR(Link());
  if (!temporary_.empty()) unlink(std::exchange(temporary_, {}).c_str());
  return durable ? FlushName(file_.path()) : absl::OkStatus();
}

}  // namespace ringside
