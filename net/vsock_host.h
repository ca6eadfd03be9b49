// The host's end of a guest's vsock, as Firecracker has it: a Unix socket at a path, where programs
// of the host connect to ports of the guest, and sockets beside it, "PATH_PORT", where programs
// listen for what the guest connects to.
//
// Threads: Accept and Connect one at a time; the counts may be read by any.
// Ownership: it has the listening socket and its file, which goes with it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/counter.h"
#include "base/fd.h"
#include "base/unix_listener.h"

namespace ringside {

// Over the life of the host's end: a device that is made anew goes on with them.
struct VsockCounts {
  Counter open;          // no count: connections that there are now, and those still being made
  Counter made;          // connections that both sides have agreed to
  Counter refused;       // by either side, or for want of room
  Counter credit_waits;  // how often data for the guest had to wait until it had room
};

class VsockHost {
 public:
  // FailedPrecondition, InvalidArgument: another process listens there, or it is no socket.
  static absl::StatusOr<std::unique_ptr<VsockHost>> Listen(const std::string& path);

  const std::string& path() const { return path_; }
  // Until Close.
  int listening_fd() const { return listener_->fd(); }

  // What came of taking, or making, a connection. Neither waits.
  enum class Got {
    kConnection,
    kNothing,        // nobody connects, or nobody listens
    kNoDescriptors,  // of this process or the host: later, perhaps
  };
  Got Accept(UniqueFd& connection);
  // Nobody accepts any more: the file goes, and so do the connections that nobody has accepted yet.
  void Close() { listener_.reset(); }
  // To the program that listens for what the guest connects to on this port.
  Got Connect(uint32_t port, UniqueFd& connection);

  VsockCounts& counts() { return counts_; }
  const VsockCounts& counts() const { return counts_; }

 private:
  VsockHost(std::string path, UnixListener listener)
      : path_(std::move(path)), listener_(std::move(listener)) {}

  const std::string path_;
  std::optional<UnixListener> listener_;
  VsockCounts counts_;
};

}  // namespace ringside
