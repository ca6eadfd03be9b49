#include "base/unix_connect.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/status.h"
#include "base/unix_address.h"
#include "base/unix_socket.h"

namespace ringside {

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, absl::Duration limit,
                                     const std::function<absl::Status(int error)>& refused) {
  RINGSIDE_ASSIGN_OR_RETURN(const UnixAddress address, UnixAddress::Of(path));
  UniqueFd fd = NewUnixSocket(0);
  if (!fd.valid()) return ErrnoError(errno, "cannot make a socket", "raise 'ulimit -n'");
  // Zero would mean for ever.
  const timeval most =
      absl::ToTimeval(std::clamp(limit, absl::Milliseconds(1), absl::Hours(24 * 365)));
  if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0) {
    return ErrnoError(errno, "cannot set a socket's time limit");
  }
  int result;
  do {
    result = connect(fd.get(), address.address(), address.size());
  } while (result != 0 && errno == EINTR);
  if (result != 0) return refused(errno);
  return fd;
}

}  // namespace ringside
