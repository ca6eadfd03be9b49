#include "base/unix_listener.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/unix_socket.h"

namespace ringside {
namespace {

constexpr int kBacklog = 128;

// Between two processes that want the same path: one looks whether the other's socket answers,
// removes its file and makes its own, all under a lock of the directory. The kernel drops the lock
// of a process that dies.
class DirectoryLock {
 public:
  // Waits for at most 0.2 s, then goes without: a directory may be locked by anybody, and
  // one that cannot be listed cannot be locked.
  explicit DirectoryLock(int directory) : directory_(directory) {
    for (int tries = 20; flock(directory_, LOCK_EX | LOCK_NB) != 0 && tries > 0; --tries) {
      if (errno != EWOULDBLOCK) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~DirectoryLock() { flock(directory_, LOCK_UN); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  const int directory_;
};

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd = NewUnixSocket(SOCK_NONBLOCK);
  if (!fd.valid()) return ErrnoError(errno, "cannot make a socket", "raise 'ulimit -n'");
  return fd;
}

// Removes the file of a process that is gone.
absl::Status RemoveStale(const UnixAddress& address, const std::string& path) {
  struct stat file;
  if (fstatat(address.directory(), address.name().c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return absl::OkStatus();  // gone by now
    return ErrnoError(errno, absl::StrFormat("cannot look at '%s'", path));
  }
  if (!S_ISSOCK(file.st_mode)) {
    return BadInput("'%s' is there already and is no socket; give another path", path);
  }
  RINGSIDE_ASSIGN_OR_RETURN(const UniqueFd probe, NewSocket());
  if (connect(probe.get(), address.address(), address.size()) == 0 || errno == EAGAIN) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "socket '%s' is in use by another process; end that process, or give another path", path));
  }
  const std::string what = absl::StrFormat("cannot replace the old socket '%s'", path);
  if (errno != ECONNREFUSED) return ErrnoError(errno, what, "give another path");
  if (unlinkat(address.directory(), address.name().c_str(), 0) != 0 && errno != ENOENT) {
    return ErrnoError(errno, what, "remove it, or give another path");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UnixListener> UnixListener::Bind(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(UnixAddress address, UnixAddress::Of(path));
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  // Linux gives the file the mode of the socket (less the umask), so that it never has another. To
  // set the umask instead would also change what other threads are making.
  if (fchmod(fd.get(), 0600) != 0) return ErrnoError(errno, "cannot set a socket's mode");
  const DirectoryLock lock(address.directory());
  const auto bind_it = [&] { return bind(fd.get(), address.address(), address.size()); };
  int result = bind_it();
  if (result != 0 && errno == EADDRINUSE) {
    RINGSIDE_RETURN_IF_ERROR(RemoveStale(address, path));
    result = bind_it();
  }
  struct stat file;
  if (result != 0 ||
      fstatat(address.directory(), address.name().c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot make socket '%s'", path),
                      "give a path in a directory that this user may write to");
  }
  return UnixListener(std::move(fd), File{std::move(address), file.st_dev, file.st_ino});
}

absl::StatusOr<UnixListener> UnixListener::Adopt(int fd) {
  UniqueFd owned(fd);
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  if (option(SO_DOMAIN) != AF_UNIX || option(SO_TYPE) != SOCK_STREAM ||
      option(SO_ACCEPTCONN) != 1) {
    return BadInput("descriptor %d is no Unix stream socket that listens; hand on one that does",
                    fd);
  }
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot set up descriptor %d", fd));
  }
  RefuseDescriptors(fd);
  return UnixListener(std::move(owned), std::nullopt);
}

UnixListener::~UnixListener() {
  if (!fd_.valid() || !file_) return;
  const UnixAddress& address = file_->address;
  const DirectoryLock lock(address.directory());
  struct stat file;
  if (fstatat(address.directory(), address.name().c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0 &&
      file.st_dev == file_->device && file.st_ino == file_->inode) {
    unlinkat(address.directory(), address.name().c_str(), 0);
  }
}

absl::StatusOr<std::optional<UnixListener::Accepted>> UnixListener::Accept() const {
  UniqueFd connection(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    // The second is of a client that is gone again.
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return std::nullopt;
    return ErrnoError(errno, "cannot take a connection", "raise 'ulimit -n'");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, "cannot tell whose a connection is");
  }
  return Accepted{std::move(connection), peer.uid};
}

bool IsTrustedPeer(uid_t peer, uid_t own) {
  return peer == own || peer == 0;
}

}  // namespace ringside
