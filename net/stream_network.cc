#include "net/stream_network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <sys/socket.h>

#include "base/status.h"
#include "base/unix_connect.h"
#include "base/unix_socket.h"

namespace ringside {
namespace {

constexpr size_t kLengthSize = 4;
constexpr size_t kBuffer = 128 << 10;
constexpr absl::Duration kPatience = absl::Seconds(1);

uint32_t LengthAt(const std::byte* wire) {
  uint32_t length;
  std::memcpy(&length, wire, sizeof length);
  return be32toh(length);
}

// As much of a frame as says where it goes.
using FrameHead = std::array<std::byte, sizeof(ether_header) + sizeof(ip6_hdr)>;

// Whether no wire carries it: it is for an IPv4 address of loopback or of "this host" (RFC 1122,
// section 3.2.1.3), or for an IPv6 address of ::/80, which has loopback, the unspecified address
// and IPv4's in it (RFC 4291, section 2.5). A peer that connects its own sockets to what a guest
// names, as passt does, would lead it to services that trust whoever is on their host.
bool IsForLoopback(const FrameHead& head) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(head.data());
  const uint8_t* const packet = bytes + sizeof(ether_header);
  const int type = bytes[offsetof(ether_header, ether_type)] << 8 |
                   bytes[offsetof(ether_header, ether_type) + 1];
  if (type == ETHERTYPE_IP) {
    const uint8_t network = packet[offsetof(iphdr, daddr)];
    return network == 0 || network == IN_LOOPBACKNET;
  }
  const uint8_t* const to = packet + offsetof(ip6_hdr, ip6_dst);
  return type == ETHERTYPE_IPV6 && std::all_of(to, to + 10, [](uint8_t byte) { return byte == 0; });
}

// Copies `bytes` into what is left of the room, and returns where that goes on.
struct Room {
  std::span<const iovec> parts;
  size_t offset = 0;  // in the first

  void Put(const std::byte* bytes, size_t size) {
    while (size > 0 && !parts.empty()) {
      const size_t some = std::min(size, parts.front().iov_len - offset);
      std::memcpy(static_cast<std::byte*>(parts.front().iov_base) + offset, bytes, some);
      bytes += some;
      size -= some;
      offset += some;
      if (offset < parts.front().iov_len) return;
      parts = parts.subspan(1);
      offset = 0;
    }
  }
};

absl::Status NotConnected(int error, const std::string& path) {
  const std::string what = absl::StrFormat("cannot connect to the network's socket '%s'", path);
  if (error == EAGAIN) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: who listens there takes no connection; start another passt, as each has one guest",
        what));
  }
  return absl::FailedPreconditionError(
      ErrnoError(error, what, "start 'passt --socket' with this path first").message());
}

}  // namespace

class StreamNetwork::Channel final : public FrameChannel {
 public:
  Channel(UniqueFd fd, UniqueFd sender)
      : FrameChannel(fd.get(), sender.get()), fd_(std::move(fd)), sender_(std::move(sender)) {}

  Sent Send(std::span<const iovec> frame) override;
  bool HasUnsent() const override { return unsent_begin_ < unsent_end_; }
  Sent Flush() override;
  ssize_t Receive(std::span<const iovec> room) override;

 private:
  ssize_t SendParts(std::span<iovec> parts);
  void Keep(std::span<const iovec> parts, size_t sent);
  // Whether there are as many bytes; else kNothing or kGone says why not.
  ssize_t Read(size_t wanted);
  size_t buffered() const { return end_ - begin_; }

  const UniqueFd fd_;
  const UniqueFd sender_;
  // The sending thread's.
  std::array<iovec, kMaxFrameParts> wire_;
  size_t unsent_begin_ = 0, unsent_end_ = 0;
  const std::unique_ptr<std::byte[]> unsent_ =
      std::make_unique_for_overwrite<std::byte[]>(kLengthSize + kMaxFrame);
  // The receiving thread's.
  size_t begin_ = 0, end_ = 0;
  const std::unique_ptr<std::byte[]> buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
};

// What was sent; kNothing: the socket takes nothing now; kGone.
ssize_t StreamNetwork::Channel::SendParts(std::span<iovec> parts) {
  const msghdr message = {.msg_iov = parts.data(), .msg_iovlen = parts.size()};
  while (true) {
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) return sent;
    if (sent < 0 && errno == EINTR) continue;
    return sent < 0 && (errno == EAGAIN || errno == ENOBUFS) ? kNothing : kGone;
  }
}

FrameChannel::Sent StreamNetwork::Channel::Send(std::span<const iovec> frame) {
  if (HasUnsent()) {
    if (const Sent flushed = Flush(); flushed != Sent::kYes) return flushed;
  }
  // The frame without its header. What is looked at is copied: the guest may change it meanwhile.
  FrameHead head = {};
  size_t head_size = 0;
  size_t to_skip = kNetHeaderSize;
  size_t count = 2;
  uint32_t length = 0;
  for (const iovec& part : frame) {
    const size_t skipped = std::min(to_skip, part.iov_len);
    to_skip -= skipped;
    const std::span rest(static_cast<std::byte*>(part.iov_base) + skipped, part.iov_len - skipped);
    const size_t copied = std::min(head.size() - head_size, rest.size());
    std::copy_n(rest.data(), copied, head.begin() + head_size);
    head_size += copied;
    length += static_cast<uint32_t>(rest.size());
    if (copied == rest.size()) continue;
    // More pieces than one call takes, with two in front: no driver has so many.
    if (count == wire_.size()) return Sent::kDropped;
    wire_[count++] = {rest.data() + copied, rest.size() - copied};
  }
  if (IsForLoopback(head)) return Sent::kDropped;
  uint32_t length_on_wire = htobe32(length);
  wire_[0] = {&length_on_wire, sizeof length_on_wire};
  wire_[1] = {head.data(), head_size};
  const std::span parts = std::span(wire_).first(count);
  const ssize_t sent = SendParts(parts);
  if (sent == kNothing) return Sent::kFull;
  if (sent == kGone) return Sent::kGone;
  if (static_cast<size_t>(sent) < kLengthSize + length) Keep(parts, static_cast<size_t>(sent));
  return Sent::kYes;
}

void StreamNetwork::Channel::Keep(std::span<const iovec> parts, size_t sent) {
  unsent_begin_ = unsent_end_ = 0;
  for (const iovec& part : parts) {
    const size_t skipped = std::min(sent, part.iov_len);
    sent -= skipped;
    const size_t left = part.iov_len - skipped;
    std::memcpy(&unsent_[unsent_end_], static_cast<std::byte*>(part.iov_base) + skipped, left);
    unsent_end_ += left;
  }
}

FrameChannel::Sent StreamNetwork::Channel::Flush() {
  while (HasUnsent()) {
    iovec part = {&unsent_[unsent_begin_], unsent_end_ - unsent_begin_};
    const ssize_t sent = SendParts(std::span(&part, 1));
    if (sent == kNothing) return Sent::kFull;
    if (sent == kGone) return Sent::kGone;
    unsent_begin_ += static_cast<size_t>(sent);
  }
  return Sent::kYes;
}

ssize_t StreamNetwork::Channel::Read(size_t wanted) {
  while (buffered() < wanted) {
    if (kBuffer - begin_ < wanted) {
      std::memmove(&buffer_[0], &buffer_[begin_], buffered());
      end_ -= begin_;
      begin_ = 0;
    }
    const ssize_t size = recv(fd_.get(), &buffer_[end_], kBuffer - end_, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return kNothing;
    if (size <= 0) return kGone;
    end_ += static_cast<size_t>(size);
  }
  return static_cast<ssize_t>(wanted);
}

ssize_t StreamNetwork::Channel::Receive(std::span<const iovec> room) {
  if (const ssize_t size = Read(kLengthSize); size <= 0) return size;
  const size_t length = LengthAt(&buffer_[begin_]);
  // Behind what is no frame nothing can be found any more.
  if (length < kLeastFrame - kNetHeaderSize || length > kMaxFrame - kNetHeaderSize) return kGone;
  if (const ssize_t size = Read(kLengthSize + length); size <= 0) return size;
  constexpr std::array<std::byte, kNetHeaderSize> kPlain = {};
  Room left = {room};
  left.Put(kPlain.data(), kPlain.size());
  left.Put(&buffer_[begin_ + kLengthSize], length);
  begin_ += kLengthSize + length;
  if (begin_ == end_) begin_ = end_ = 0;
  return static_cast<ssize_t>(kNetHeaderSize + length);
}

absl::StatusOr<std::unique_ptr<StreamNetwork>> StreamNetwork::On(UniqueFd fd, std::string name) {
  UniqueFd sender(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!sender.valid()) return ErrnoError(errno, "cannot duplicate a socket", "raise 'ulimit -n'");
  RefuseDescriptors(fd.get());
  std::unique_ptr<StreamNetwork> network(new StreamNetwork);
  network->info_.name = std::move(name);
  network->channel_ = std::make_unique<Channel>(std::move(fd), std::move(sender));
  return network;
}

absl::StatusOr<std::unique_ptr<StreamNetwork>> StreamNetwork::Connect(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(path, kPatience, [&](int error) {
                              return NotConnected(error, path);
                            }));
  return On(std::move(fd), path);
}

absl::StatusOr<std::unique_ptr<StreamNetwork>> StreamNetwork::ByDescriptor(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
    return BadInput(
        "descriptor %d is no stream socket: give the one that passt has the other end of", fd);
  }
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return ErrnoError(errno, "cannot duplicate a socket", "raise 'ulimit -n'");
  return On(std::move(own), "user");
}

}  // namespace ringside
