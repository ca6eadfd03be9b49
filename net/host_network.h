// The host's end of a guest's network: frames go out through its channels and come in through them,
// one channel for each of the device's queue pairs. Behind it is a tap (net/tap.h), or another
// process that takes frames from a stream socket (net/stream_network.h).
//
// A frame has a virtio_net_hdr in front of it (VIRTIO 1.2, section 5.1.6) of kNetHeaderSize bytes,
// whose num_buffers is the device's to fill in. A network that can do nothing with the rest of it
// gets frames that need nothing, since it offers no offloads.
//
// Threads: a channel's Receive is for one thread at a time, and so are Send and Flush, perhaps
// another one's; all else of a network but counts() is called by one thread at a time, also beside
// those.
// Ownership: a network has its channels, and outlives whoever uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <sys/uio.h>

#include "absl/status/status.h"

namespace ringside {

inline constexpr size_t kNetHeaderSize = 12;
inline constexpr size_t kNumBuffersOffset = 10;  // in the header: two bytes, little-endian
// The longest IP packet behind an Ethernet header with a VLAN tag.
inline constexpr size_t kMaxFrame = kNetHeaderSize + 18 + 65535;
inline constexpr size_t kLeastFrame = kNetHeaderSize + 14;
// As many as one readv or writev takes (limits.h: IOV_MAX).
inline constexpr size_t kMaxFrameParts = 1024;

class VhostNet;

class FrameChannel {
 public:
  enum class Sent {
    kYes,
    kDropped,  // the host does not want it
    kFull,     // the host takes no frame now; one later may go once send_fd() is writable
    kGone,     // the network is no longer there
  };
  static constexpr ssize_t kNothing = 0;
  static constexpr ssize_t kGone = -1;

  virtual ~FrameChannel() = default;

  // The frame, header and all, in at most kMaxFrameParts pieces and kMaxFrame bytes.
  virtual Sent Send(std::span<const iovec> frame) = 0;
  // Whether a part of a frame that was sent is still here: Flush is to be called once send_fd() is
  // writable.
  virtual bool HasUnsent() const { return false; }
  virtual Sent Flush() { return Sent::kYes; }
  // The next frame, with its header, into pieces that have room for kMaxFrame bytes. How many bytes
  // it has, kNothing or kGone. After kNothing, receive_fd() tells when there is one.
  virtual ssize_t Receive(std::span<const iovec> room) = 0;

  // Of whoever receives, for as long as the channel lasts: memory for a frame, or for what of one
  // did not fit elsewhere.
  struct Kept {
    const std::unique_ptr<std::byte[]> bytes =
        std::make_unique_for_overwrite<std::byte[]>(kMaxFrame);
    size_t size = 0;  // of a whole frame that was received and is to be delivered; 0: there is none
    uint32_t offloads = 0;  // NetOffload: what it may leave to the guest
  };
  Kept& kept() { return kept_; }

  // Poll for reading and for writing. Two, because an epoll takes a descriptor once.
  int receive_fd() const { return receive_fd_; }
  int send_fd() const { return send_fd_; }

 protected:
  FrameChannel(int receive_fd, int send_fd) : receive_fd_(receive_fd), send_fd_(send_fd) {}

 private:
  const int receive_fd_;
  const int send_fd_;
  Kept kept_;
};

// What a guest may be left to do to a frame that comes in.
enum NetOffload : uint32_t {
  kNetChecksum = 1,  // compute a checksum, of TCP or UDP
  kNetTso4 = 2,      // take a TCP segment that is longer than the MTU, over IPv4
  kNetTso6 = 4,      // the same over IPv6
  kNetEcn = 8,       // such a segment with congestion notification
};

// As the guest sees them: what came in to it, and what went out.
struct NetCounts {
  uint64_t frames_in = 0, bytes_in = 0;
  uint64_t frames_out = 0, bytes_out = 0;
};

class HostNetwork {
 public:
  struct Info {
    std::string name;       // of the tap, or the socket's path
    uint16_t pairs = 1;     // channels
    uint32_t offloads = 0;  // NetOffload: what it can leave to a guest
    // Whether frames that the guest sends may leave checksums and segmentation to the host.
    bool takes_offloads = false;
    uint16_t mtu = 0;  // 0: not known
  };

  virtual ~HostNetwork() = default;

  virtual const Info& info() const = 0;
  virtual FrameChannel& channel(uint16_t pair) = 0;
  // A guest that changes its network all the time would hold up others who change networks of this
  // host. A change of a guest's that comes too soon after others waits, for a second at most, or is
  // refused; one of the host's own never does.
  enum class TooSoon { kWait, kRefuse, kNever };
  // From now on frames leave that much to the guest, and no more. Unavailable: the network is gone.
  // ResourceExhausted: it was too soon.
  virtual absl::Status SetOffloads(uint32_t offloads, TooSoon too_soon) = 0;
  // From now on the first `pairs` channels get frames, and the others none. Likewise.
  virtual absl::Status SetPairs(uint16_t pairs, TooSoon too_soon) = 0;
  // Has the host see that the cable is pulled, or plugged in, where it can.
  virtual void SetCarrier(bool /*up*/) {}
  // Who carries the frames of a pair instead of its channel; null: nobody.
  virtual VhostNet* vhost(uint16_t /*pair*/) { return nullptr; }
  // What it has carried since it was opened, where nobody here counts it. For any thread, beside
  // all else.
  virtual std::optional<NetCounts> counts() const { return std::nullopt; }
};

}  // namespace ringside
