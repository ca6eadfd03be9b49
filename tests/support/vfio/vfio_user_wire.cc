#include "tests/support/vfio/vfio_user_wire.h"

#include <array>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/str_format.h"

namespace ringside::testing {
namespace {

// The most that Linux passes at once (SCM_MAX_FD).
constexpr size_t kMostFds = 253;

// The descriptors that came along.
void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

// 0: the peer is gone, or we are to stop.
size_t ReceiveSome(int socket, int stop_fd, std::span<std::byte> into, std::vector<UniqueFd>& fds) {
  std::array<pollfd, 2> watched = {pollfd{.fd = socket, .events = POLLIN, .revents = 0},
                                   pollfd{.fd = stop_fd, .events = POLLIN, .revents = 0}};
  if (poll(watched.data(), watched.size(), -1) <= 0 || watched[1].revents != 0) return 0;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostFds * sizeof(int))> control;
  iovec bytes = {.iov_base = into.data(), .iov_len = into.size()};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return 0;
  TakeFds(message, fds);
  return static_cast<size_t>(got);
}

bool ReceiveAll(int socket, int stop_fd, std::span<std::byte> into, std::vector<UniqueFd>& fds) {
  while (!into.empty()) {
    const size_t got = ReceiveSome(socket, stop_fd, into, fds);
    if (got == 0) return false;
    into = into.subspan(got);
  }
  return true;
}

}  // namespace

bool ReceiveVfioUser(int socket, int stop_fd, VfioUserMessage& message, std::string& wrong) {
  message = {};
  const std::span<VfioUserHeader> header(&message.header, 1);
  if (!ReceiveAll(socket, stop_fd, std::as_writable_bytes(header), message.fds)) return false;
  if (message.header.size < sizeof(VfioUserHeader) ||
      message.header.size > sizeof(VfioUserHeader) + kVfioUserMaxPayload) {
    wrong = absl::StrFormat("a message of %d bytes, by its header", message.header.size);
    return false;
  }
  message.payload.resize(message.header.size - sizeof(VfioUserHeader));
  const size_t fds = message.fds.size();
  if (!ReceiveAll(socket, stop_fd, message.payload, message.fds)) return false;
  if (message.fds.size() != fds) {
    wrong = "descriptors do not come with their message's first byte";
    return false;
  }
  return true;
}

bool SendVfioUser(int socket, const VfioUserHeader& request, const VfioUserReply& reply) {
  VfioUserHeader header = {.id = request.id,
                           .command = request.command,
                           .size = sizeof(VfioUserHeader),
                           .flags = kVfioUserTypeReply,
                           .error = static_cast<uint32_t>(reply.error)};
  std::span<const std::byte> payload;
  if (reply.error != 0) {
    header.flags |= kVfioUserError;
  } else {
    payload = reply.payload;
  }
  header.size += static_cast<uint32_t>(payload.size());
  std::vector<std::byte> bytes(header.size);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof header);

  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control = {};
  iovec data = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (reply.error == 0 && reply.fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &reply.fd, sizeof(int));
  }
  // The socket has a time limit for that.
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace ringside::testing
