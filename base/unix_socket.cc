#include "base/unix_socket.h"

#include <sys/socket.h>

namespace ringside {

void RefuseDescriptors(int fd) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS, of which Debian 12's headers do not know
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, kPassRights, &off, sizeof off);  // fails on an older kernel
}

UniqueFd NewUnixSocket(int flags) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (fd.valid()) RefuseDescriptors(fd.get());
  return fd;
}

}  // namespace ringside
