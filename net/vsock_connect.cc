#include "net/vsock_connect.h"

#include <array>
#include <cerrno>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "base/poll_until.h"
#include "base/status.h"
#include "base/unix_connect.h"
#include "ringside/vsock.h"

namespace ringside {
namespace {

constexpr size_t kMostAnswer = 64;  // bytes of "OK <port>\n"

absl::Status ConnectError(int error, const std::string& path) {
  const std::string what = absl::StrFormat("cannot connect to vsock socket '%s'", path);
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return BadInput("'%s' is no socket; give the socket of a machine's vsock device", path);
  }
  if (error == ENOENT) {
    return ErrnoError(error, what, "start the machine, or give its socket's path");
  }
  if (error == ECONNREFUSED) {
    return absl::UnavailableError(absl::StrFormat("%s: its machine has ended", what));
  }
  if (error == EACCES) return ErrnoError(error, what, "run as the user of the machine's process");
  return ErrnoError(error, what);
}

// Up to the line's end, and no byte more. False at the connection's end.
bool ReadSomeOfLine(int fd, std::string& line) {
  std::array<char, kMostAnswer> seen;
  const ssize_t there = recv(fd, seen.data(), seen.size() - line.size(), MSG_PEEK);
  if (there < 0) return errno == EINTR;
  const std::string_view text(seen.data(), static_cast<size_t>(there));
  const size_t end = text.find('\n');
  const size_t mine = end == std::string_view::npos ? text.size() : end + 1;
  const ssize_t got = recv(fd, seen.data(), mine, 0);
  if (got > 0) line.append(seen.data(), static_cast<size_t>(got));
  return got > 0;
}

absl::Status NoAnswerWithin(absl::Duration limit, const std::string& name) {
  return absl::UnavailableError(absl::StrFormat("the guest behind '%s' has not answered within %s",
                                                name, absl::FormatDuration(limit)));
}

// On a socket that is connected to the vsock's at `path`; `deadline` ends the limit.
absl::Status AskForGuestPort(int fd, const std::string& path, uint32_t port, absl::Duration limit,
                             Deadline deadline) {
  const std::string request = absl::StrFormat("CONNECT %d\n", port);
  // A new socket has room for it.
  const bool asked = send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(request.size());
  std::string line;
  while (asked && !line.ends_with('\n') && line.size() < kMostAnswer) {
    const int ready = PollUntil(fd, POLLIN, deadline);
    if (ready < 0) return ErrnoError(errno, "cannot wait for the guest");
    if (ready == 0) return NoAnswerWithin(limit, path);
    if (!ReadSomeOfLine(fd, line)) break;
  }
  if (line.empty()) {
    return absl::UnavailableError(
        absl::StrFormat("nobody listens on port %d of the guest behind '%s'", port, path));
  }
  if (line.starts_with("OK ") && line.ends_with('\n')) return absl::OkStatus();
  return BadInput("'%s' does not answer as a vsock socket does; give that of a machine", path);
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectVsock(const std::string& path, uint32_t port,
                                      absl::Duration limit) {
  const Deadline deadline = DeadlineIn(limit);
  RINGSIDE_ASSIGN_OR_RETURN(
      UniqueFd fd, ConnectUnix(path, limit, [&](int error) { return ConnectError(error, path); }));
  RINGSIDE_RETURN_IF_ERROR(AskForGuestPort(fd.get(), path, port, limit, deadline));
  return fd;
}

absl::StatusOr<int> ConnectToGuest(const std::string& vsock, uint32_t port, absl::Duration limit) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, ConnectVsock(vsock, port, limit));
  const timeval never = {};  // a socket like any other from here on
  if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &never, sizeof never) != 0) {
    return ErrnoError(errno, "cannot lift a socket's time limit");
  }
  return fd.Release();
}

}  // namespace ringside
