#include "block/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace ringside {
namespace {

// The kernel lets go of a killed process's io_uring, and of the files in it, up to 50 ms after the
// process: who takes its place at once waits a little.
constexpr int kTries = 20;
constexpr absl::Duration kPause = absl::Milliseconds(10);

}  // namespace

absl::Status LockFile(int fd, bool read_only, const std::string& name) {
  struct flock lock = {};
  lock.l_type = static_cast<short>(read_only ? F_RDLCK : F_WRLCK);
  lock.l_whence = SEEK_SET;  // from 0 on for 0 bytes: all of it, however long it becomes
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return absl::OkStatus();
    error = errno;
    if (error == EAGAIN || error == EACCES) {
      absl::SleepFor(kPause);
    } else if (error != EINTR) {
      break;
    }
  }
  if (error == EAGAIN || error == EACCES) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is in use by another process, or twice in this machine; %s", name,
        read_only ? "end who writes to it" : "end who uses it, or use readonly=on in all of them"));
  }
  return ErrnoError(error, "cannot lock " + name, "its file system must have file locks");
}

void UnlockFile(int fd) {
  struct flock lock = {};
  lock.l_type = F_UNLCK;
  lock.l_whence = SEEK_SET;
  fcntl(fd, F_OFD_SETLK, &lock);
}

}  // namespace ringside
