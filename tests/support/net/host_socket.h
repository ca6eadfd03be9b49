// A Unix socket of a program of the host, as those that a guest's vsock meets.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "base/fd.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// Reads and writes wait, for kWaitLimit at most.
class HostSocket {
 public:
  explicit HostSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  static HostSocket Unconnected() {
    return HostSocket(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  }
  static HostSocket ConnectTo(const std::string& path) {
    HostSocket socket = Unconnected();
    if (!socket.Connect(path)) std::abort();
    return socket;
  }
  static HostSocket ListenAt(const std::string& path, int backlog = 1024) {
    HostSocket socket = Unconnected();
    const sockaddr_un address = AddressOf(path);
    if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(socket.fd(), backlog) != 0) {
      std::abort();
    }
    return socket;
  }

  int fd() const { return fd_.get(); }
  bool Connect(const std::string& path) const {
    const sockaddr_un address = AddressOf(path);
    return connect(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  HostSocket Accept() const {
    if (!WaitForFd(fd(), POLLIN)) std::abort();
    return HostSocket(UniqueFd(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  bool Write(std::string_view text) const {
    while (!text.empty()) {
      if (!WaitForFd(fd(), POLLOUT)) return false;
      const ssize_t size = send(fd(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size <= 0) return false;
      text.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }
  // Text with a descriptor along.
  bool SendWithDescriptor(std::string_view text, int descriptor) const {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
    std::string bytes(text);
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message{.msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {
        .cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return sendmsg(fd(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Less if it ends before.
  std::string Read(size_t wanted) const {
    std::string text(wanted, 0);
    size_t got = 0;
    while (got < wanted && WaitForFd(fd(), POLLIN)) {
      const ssize_t size = recv(fd(), &text[got], wanted - got, MSG_DONTWAIT);
      if (size <= 0) break;
      got += static_cast<size_t>(size);
    }
    text.resize(got);
    return text;
  }
  std::string ReadLine() const {
    std::string line;
    while (line.empty() || line.back() != '\n') {
      const std::string next = Read(1);
      if (next.empty()) break;
      line += next;
    }
    return line;
  }
  // The other side is done, or gone.
  bool AtEnd() const {
    char byte;
    return WaitForFd(fd(), POLLIN) && recv(fd(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  void Close() { fd_ = UniqueFd(); }

 private:
  static sockaddr_un AddressOf(const std::string& path) {
    sockaddr_un address = {.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }
  UniqueFd fd_;
};

}  // namespace ringside::testing
