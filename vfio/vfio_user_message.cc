#include "vfio/vfio_user_message.h"

#include <array>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/status.h"

namespace ringside {
namespace {

using Json = nlohmann::json;

constexpr size_t kFdBytes = kVfioUserMaxMessageFds * sizeof(int);

// Room for descriptors, aligned as the kernel wants it.
union ControlBuffer {
  cmsghdr alignment;
  std::array<char, CMSG_SPACE(kFdBytes)> bytes;
};

// All that came, so that all are closed.
void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

// A number that is there and is none, or too small to go on with, is an error.
absl::Status TakeNumber(const Json& object, const char* name, uint64_t least, uint64_t& value) {
  const auto found = object.find(name);
  if (found == object.end()) return absl::OkStatus();
  if (!found->is_number_unsigned() || found->get<uint64_t>() < least) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its capability %s is no number from %d", name, least));
  }
  value = found->get<uint64_t>();
  return absl::OkStatus();
}

}  // namespace

absl::Status VfioUserWriter::Add(VfioUserHeader header, VfioUserPayload payload,
                                 std::span<const int> fds, int64_t end_ns) {
  if (fds.size() > kVfioUserMaxMessageFds) {
    return absl::InternalError(absl::StrFormat("%d descriptors beside one message", fds.size()));
  }
  std::vector<UniqueFd> copies;
  for (const int fd : fds) {
    copies.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copies.back().valid()) return ErrnoError(errno, "cannot send a descriptor");
  }
  header.size = static_cast<uint32_t>(sizeof header + payload.size());
  messages_.push_back({.header = header,
                       .payload = std::move(payload),
                       .fds = std::move(copies),
                       .end_ns = end_ns});
  return absl::OkStatus();
}

absl::Status VfioUserWriter::Send(int socket) {
  while (!messages_.empty()) {
    Message& message = messages_.front();
    RINGSIDE_ASSIGN_OR_RETURN(const size_t sent, SendSome(socket, message));
    if (sent == 0) break;
    message.sent += sent;
    message.fds.clear();  // they went with the first byte
    if (message.sent == message.header.size) messages_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> VfioUserWriter::SendSome(int socket, Message& message) {
  const auto header = std::as_writable_bytes(std::span(&message.header, 1));
  const size_t of_header = std::min(message.sent, header.size());
  const size_t of_payload = message.sent - of_header;
  std::array<iovec, 2> parts = {
      iovec{header.data() + of_header, header.size() - of_header},
      iovec{message.payload.data() + of_payload, message.payload.size() - of_payload},
  };
  msghdr head{.msg_iov = parts.data(), .msg_iovlen = parts.size()};
  ControlBuffer control{};
  if (!message.fds.empty()) {
    const size_t bytes = message.fds.size() * sizeof(int);
    head.msg_control = control.bytes.data();
    head.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    for (size_t i = 0; i < message.fds.size(); ++i) {
      const int fd = message.fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &head, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno == EAGAIN) return 0;
  if (sent < 0) return absl::UnavailableError("it has closed the connection");
  return static_cast<size_t>(sent);
}

absl::StatusOr<bool> VfioUserReader::Fill(int socket, std::span<std::byte> bytes) {
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control;
  msghdr message{.msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control.bytes.data(),
                 .msg_controllen = sizeof control.bytes};
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) return absl::UnavailableError("it has closed the connection");
  TakeFds(message, message_.fds);
  if ((message.msg_flags & MSG_CTRUNC) != 0 || message_.fds.size() > kVfioUserMaxMessageFds) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it sent more than %d descriptors at once", kVfioUserMaxMessageFds));
  }
  (header_bytes_ < sizeof(VfioUserHeader) ? header_bytes_ : payload_bytes_) +=
      static_cast<size_t>(got);
  return static_cast<size_t>(got) == bytes.size();
}

absl::StatusOr<std::optional<VfioUserMessage>> VfioUserReader::Receive(int socket) {
  VfioUserHeader& header = message_.header;
  if (header_bytes_ < sizeof header) {
    RINGSIDE_ASSIGN_OR_RETURN(
        const bool is_whole,
        Fill(socket, std::as_writable_bytes(std::span(&header, 1)).subspan(header_bytes_)));
    if (!is_whole) return std::nullopt;
    if (header.size < sizeof header || header.size - sizeof header > kVfioUserMaxPayload) {
      return absl::InvalidArgumentError(
          absl::StrFormat("it sent a message of %d bytes", header.size));
    }
    message_.payload.resize(header.size - sizeof header);
  }
  if (payload_bytes_ < message_.payload.size()) {
    RINGSIDE_ASSIGN_OR_RETURN(const bool is_whole,
                              Fill(socket, std::span(message_.payload).subspan(payload_bytes_)));
    if (!is_whole) return std::nullopt;
  }
  header_bytes_ = payload_bytes_ = 0;
  return std::exchange(message_, VfioUserMessage());
}

VfioUserPayload VfioUserVersionRequest() {
  const Json json = {
      {"capabilities",
       {{"max_msg_fds", kVfioUserMaxMessageFds}, {"max_data_xfer_size", kVfioUserMaxTransfer}}}};
  const std::string text = json.dump();
  VfioUserPayload payload;
  AppendTo(payload, VfioUserVersion{.major = kVfioUserMajor, .minor = kVfioUserMinor});
  const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + 1));
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

absl::StatusOr<VfioUserCapabilities> ParseVfioUserVersion(std::span<const std::byte> payload) {
  const auto version = HeadOf<VfioUserVersion>(payload);
  if (!version) return absl::InvalidArgumentError("it answers no version");
  if (version->major != kVfioUserMajor) {
    return absl::FailedPreconditionError(
        absl::StrFormat("it speaks version %d.%d of vfio-user, and %d.%d is needed", version->major,
                        version->minor, kVfioUserMajor, kVfioUserMinor));
  }
  VfioUserCapabilities capabilities;
  const auto rest = payload.subspan(sizeof *version);
  if (rest.empty()) return capabilities;
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size() - 1);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (rest.back() != std::byte{0} || !json.is_object()) {
    return absl::InvalidArgumentError("its capabilities are no JSON object");
  }
  const auto found = json.find("capabilities");
  if (found == json.end()) return capabilities;
  if (!found->is_object()) {
    return absl::InvalidArgumentError("its capabilities are no JSON object");
  }
  uint64_t fds = capabilities.max_fds;
  RINGSIDE_RETURN_IF_ERROR(TakeNumber(*found, "max_msg_fds", 0, fds));
  capabilities.max_fds = static_cast<uint32_t>(std::min<uint64_t>(fds, kVfioUserMaxMessageFds));
  RINGSIDE_RETURN_IF_ERROR(
      TakeNumber(*found, "max_data_xfer_size", sizeof(uint64_t), capabilities.max_transfer));
  RINGSIDE_RETURN_IF_ERROR(TakeNumber(*found, "max_dma_maps", 1, capabilities.max_dma_maps));
  RINGSIDE_RETURN_IF_ERROR(TakeNumber(*found, "pgsizes", 1, capabilities.page_sizes));
  return capabilities;
}

}  // namespace ringside
