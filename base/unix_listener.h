// A Unix socket that takes connections, and its file.
//
// Threads: one at a time. Ownership: it owns the socket, and the file where it has made one.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/unix_address.h"

namespace ringside {

class UnixListener {
 public:
  // Makes the file, which only this user may connect to, from its first moment on. The file of a
  // process that is gone is replaced. An error if a process still listens there, and if the path is
  // of anything else than a socket.
  static absl::StatusOr<UnixListener> Bind(const std::string& path);
  // Takes over a socket that listens already, as a supervisor hands it on. Its file stays.
  static absl::StatusOr<UnixListener> Adopt(int fd);

  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(file_, other.file_);
    return *this;
  }
  // Removes the file, if it is still the one that was made.
  ~UnixListener();

  int fd() const { return fd_.get(); }

  // The next connection, without waiting; nothing if there is none. `peer` is whose process made
  // it.
  struct Accepted {
    UniqueFd fd;
    uid_t peer;
  };
  absl::StatusOr<std::optional<Accepted>> Accept() const;

 private:
  struct File {
    UnixAddress address;
    dev_t device;
    ino_t inode;
  };

  UnixListener(UniqueFd fd, std::optional<File> file)
      : fd_(std::move(fd)), file_(std::move(file)) {}

  UniqueFd fd_;
  std::optional<File> file_;
};

// Whether a process of that user may speak to this one: its own user, and root.
bool IsTrustedPeer(uid_t peer, uid_t own);

}  // namespace ringside
