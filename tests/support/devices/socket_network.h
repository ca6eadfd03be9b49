// The host's side of a virtio-net device: each channel is one end of a pair of sockets that keep
// frames apart, as a tap does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "devices/virtio_net.h"
#include "net/frame_file.h"
#include "net/vhost_net.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// A frame's bytes behind its header: made from a number, so that each can be told from others.
inline std::vector<uint8_t> FrameOf(uint32_t number, size_t size) {
  std::vector<uint8_t> frame(size);
  for (size_t i = 0; i < size; ++i) frame[i] = static_cast<uint8_t>(number * 31 + i * 7 + i / 256);
  std::memcpy(frame.data(), &number, sizeof number);
  return frame;
}
inline std::vector<uint8_t> WithHeader(const std::vector<uint8_t>& frame, uint8_t flags = 0) {
  std::vector<uint8_t> all(kNetHeaderSize);
  all[0] = flags;
  all.insert(all.end(), frame.begin(), frame.end());
  return all;
}

// What is behind the header.
using Frame = std::vector<uint8_t>;
inline Frame Body(const Frame& frame) {
  return {frame.begin() + static_cast<ptrdiff_t>(std::min(frame.size(), kNetHeaderSize)),
          frame.end()};
}

class SocketNetwork final : public HostNetwork {
 public:
  explicit SocketNetwork(uint16_t pairs) {
    info_.name = "fake";
    info_.pairs = pairs;
    for (uint16_t i = 0; i < pairs; ++i) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) abort();
      for (const int end : ends) {
        const int size = 1 << 20;
        setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
      }
      UniqueFd sender(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
      channels_.push_back(std::make_unique<FrameFile>(UniqueFd(ends[0]), std::move(sender)));
      peers_.emplace_back(ends[1]);
    }
  }

  const Info& info() const override { return info_; }
  FrameChannel& channel(uint16_t pair) override { return *channels_[pair]; }
  absl::Status SetOffloads(uint32_t offloads, TooSoon too_soon) override {
    last_offloads = offloads;
    last_too_soon = too_soon;
    return refuses;
  }
  absl::Status SetPairs(uint16_t pairs, TooSoon too_soon) override {
    last_pairs = pairs;
    last_too_soon = too_soon;
    return absl::OkStatus();
  }

  // The host's side.
  bool Send(const std::vector<uint8_t>& frame, uint16_t pair = 0) {
    return write(peers_[pair].get(), frame.data(), frame.size()) ==
           static_cast<ssize_t>(frame.size());
  }
  std::optional<std::vector<uint8_t>> TryReceive(uint16_t pair = 0) {
    std::vector<uint8_t> frame(kMaxFrame);
    const ssize_t size = read(peers_[pair].get(), frame.data(), frame.size());
    if (size <= 0) return std::nullopt;
    frame.resize(static_cast<size_t>(size));
    return frame;
  }
  std::optional<std::vector<uint8_t>> Receive(uint16_t pair = 0) {
    if (!WaitForFd(peers_[pair].get(), POLLIN)) return std::nullopt;
    return TryReceive(pair);
  }
  // Bytes that a frame which was sent would have to wait behind.
  bool HasUnread(uint16_t pair = 0) {
    // As the other end sees it: nothing of the device's is left to read.
    uint8_t byte;
    return recv(channels_[pair]->receive_fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  void Close(uint16_t pair = 0) { peers_[pair] = UniqueFd(); }

  VhostNet* vhost(uint16_t /*pair*/) override { return vhost_.get(); }

  Info info_;
  std::unique_ptr<VhostNet> vhost_;  // null: I/O threads carry the frames
  std::atomic<uint32_t> last_offloads{~0U};
  std::atomic<uint16_t> last_pairs{0};
  std::atomic<TooSoon> last_too_soon{TooSoon::kRefuse};
  absl::Status refuses;

 private:
  std::vector<std::unique_ptr<FrameFile>> channels_;
  std::vector<UniqueFd> peers_;
};

}  // namespace ringside::testing
