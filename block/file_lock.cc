#include "block/file_lock.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "block/file_users.h"

namespace ringside {
namespace {

// The kernel lets go of an ended process's io_uring, and of the files in it, some time after the
// process, 50 ms here and more on a busy host: who takes its place at once waits a little.
constexpr int kTries = 100;
constexpr absl::Duration kPause = absl::Milliseconds(10);

bool IsInUse(int error) {
  return error == EAGAIN || error == EACCES;
}

// Until `attempt` succeeds, or fails with what waiting cannot mend. Its last errno, or 0.
template <typename Attempt>
int TryForAWhile(const Attempt& attempt, bool (*is_in_use)(int)) {
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    if (attempt() == 0) return 0;
    error = errno;
    if (is_in_use(error)) {
      absl::SleepFor(kPause);
    } else if (error != EINTR) {
      break;
    }
  }
  return error;
}

// Takes a lease and gives it back. 0: it was to be had, or this cannot be told; EAGAIN: it was not.
// Spec: fcntl(2) under F_SETLEASE.
int TryLease(int fd, int kind) {
  // Whoever opens the file in between breaks the lease, of which the kernel tells its holder by
  // SIGIO, the end of a process that is not prepared. SIGURG is ignored unless somebody wants it,
  // and whoever does has to live with those of sockets.
  fcntl(fd, F_SETSIG, SIGURG);
  const int error = TryForAWhile([&] { return fcntl(fd, F_SETLEASE, kind); },
                                 [](int each) { return each == EAGAIN; });
  if (error == 0) fcntl(fd, F_SETLEASE, F_UNLCK);
  fcntl(fd, F_SETSIG, 0);
  // EACCES: another user's file. EINVAL: no regular file, or a file system without leases.
  return error == EAGAIN ? EAGAIN : 0;
}

}  // namespace

absl::Status LockFile(int fd, bool read_only, const std::string& name) {
  struct flock lock = {};
  lock.l_type = static_cast<short>(read_only ? F_RDLCK : F_WRLCK);
  lock.l_whence = SEEK_SET;  // from 0 on for 0 bytes: all of it, however long it becomes
  const int error = TryForAWhile([&] { return fcntl(fd, F_OFD_SETLK, &lock); }, IsInUse);
  if (error == 0) return absl::OkStatus();
  if (IsInUse(error)) {
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

absl::Status RefuseWriters(int fd, const std::string& name) {
  if (TryLease(fd, F_RDLCK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is open for writing by %s; end that, or use a copy that nobody changes",
                      name, FileUser(fd, /*writers_only=*/true)));
}

absl::Status RefuseOthers(int fd, const std::string& name) {
  if (TryLease(fd, F_WRLCK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat("%s is open in %s; end that first", name,
                                                       FileUser(fd, /*writers_only=*/false)));
}

}  // namespace ringside
