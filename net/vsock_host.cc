#include "net/vsock_host.h"

#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "base/status.h"
#include "base/unix_address.h"
#include "base/unix_socket.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<VsockHost>> VsockHost::Listen(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Bind(path));
  return std::unique_ptr<VsockHost>(new VsockHost(path, std::move(listener)));
}

VsockHost::Got VsockHost::Accept(UniqueFd& connection) {
  absl::StatusOr<std::optional<UnixListener::Accepted>> accepted = listener_->Accept();
  if (!accepted.ok()) return Got::kNoDescriptors;
  if (!accepted->has_value()) return Got::kNothing;
  connection = std::move((*accepted)->fd);
  return Got::kConnection;
}

VsockHost::Got VsockHost::Connect(uint32_t port, UniqueFd& connection) {
  // The path each time: who listens may have come later.
  const absl::StatusOr<UnixAddress> address =
      UnixAddress::Of(absl::StrFormat("%s_%d", path_, port));
  if (!address.ok()) {
    return absl::IsResourceExhausted(address.status()) ? Got::kNoDescriptors : Got::kNothing;
  }
  connection = NewUnixSocket(SOCK_NONBLOCK);
  if (!connection.valid()) return Got::kNoDescriptors;
  // A Unix socket connects at once or not at all: one whose queue is full refuses, too.
  const int result = connect(connection.get(), address->address(), address->size());
  return result == 0 ? Got::kConnection : Got::kNothing;
}

}  // namespace ringside
