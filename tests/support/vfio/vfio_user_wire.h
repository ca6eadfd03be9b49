// Messages of vfio-user on a socket, as the test server takes and gives them.
//
// Threads: one a socket. Units: bytes.
// Source: the vfio-user protocol 0.1, docs/interop/vfio-user.rst of QEMU, "Header".
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "vfio/vfio_user_protocol.h"

namespace ringside::testing {

struct VfioUserMessage {
  VfioUserHeader header = {};
  std::vector<std::byte> payload;
  std::vector<UniqueFd> fds;

  VfioUserCommand command() const { return static_cast<VfioUserCommand>(header.command); }
  bool wants_reply() const { return (header.flags & kVfioUserNoReply) == 0; }
  // What the payload begins with; there must be enough of it.
  template <typename T>
  T As() const {
    T value;
    std::memcpy(&value, payload.data(), sizeof value);
    return value;
  }
};

struct VfioUserReply {
  int error = 0;  // errno; there is nothing else then
  std::vector<std::byte> payload = {};
  int fd = -1;

  template <typename T>
  static VfioUserReply With(const T& value) {
    VfioUserReply reply;
    reply.Append(value);
    return reply;
  }
  template <typename T>
  void Append(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    payload.insert(payload.end(), bytes, bytes + sizeof value);
  }
};

// False: the peer is gone, `stop_fd` is readable, or what came cannot be a message; of that
// `wrong` tells.
bool ReceiveVfioUser(int socket, int stop_fd, VfioUserMessage& message, std::string& wrong);

// False: the peer is gone.
bool SendVfioUser(int socket, const VfioUserHeader& request, const VfioUserReply& reply);

}  // namespace ringside::testing
