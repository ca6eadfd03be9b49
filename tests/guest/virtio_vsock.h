// A vsock: virtio-vsock over either transport, its packets and its three queues. What the packets
// say to each other is vsock_streams.h's.
//
// Source: VIRTIO 1.2, section 5.10.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_VSOCK_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_VSOCK_H_

#include <cstdint>

#include "queue_pair.h"
#include "virtio_mmio.h"
#include "virtio_pci.h"

namespace guest {

constexpr uint64_t kVsockHostCid = 2;
constexpr uint16_t kVsockStreamType = 1;

enum class VsockOp : uint16_t {
  kRequest = 1,
  kResponse = 2,
  kReset = 3,
  kShutdown = 4,
  kData = 5,
  kCreditUpdate = 6,
  kCreditRequest = 7,
};

// Flags of kShutdown.
constexpr uint32_t kVsockNoReceive = 1;
constexpr uint32_t kVsockNoSend = 2;

// Section 5.10.6, little-endian as this machine is.
struct __attribute__((packed)) VsockHeader {
  uint64_t source_cid = 0;
  uint64_t destination_cid = 0;
  uint32_t source_port = 0;
  uint32_t destination_port = 0;
  uint32_t length = 0;
  uint16_t type = kVsockStreamType;
  VsockOp op = VsockOp::kReset;
  uint32_t flags = 0;
  uint32_t buf_alloc = 0;
  uint32_t fwd_cnt = 0;
};
static_assert(sizeof(VsockHeader) == 44);

struct VsockOptions {
  bool event_idx = true;
  Wait wait = Wait::kPolled;
  uint16_t queue_size = 256;  // or the device's, if that is smaller
  uint32_t most_sent = 4096;  // bytes of data in a packet out
  bool buffers = true;        // receive buffers are there from the start
};

// A packet that has come.
struct VsockPacket {
  VsockHeader header;
  const uint8_t* data = nullptr;
  uint16_t slot = 0;
};

// The queues of packets.
class VsockPair : public QueuePair {
 public:
  // Linux's drivers have buffers of this size, too.
  static constexpr uint32_t kReceiveBytes = 4096;

  bool Start(VirtioTransport& transport, const VsockOptions& options);

  VsockHeader& header(uint16_t slot) {
    return *reinterpret_cast<VsockHeader*>(TransmitBuffer(slot));
  }
  uint8_t* data(uint16_t slot) {
    return reinterpret_cast<uint8_t*>(TransmitBuffer(slot) + sizeof(VsockHeader));
  }
  // With as many bytes of data as its header says.
  void Transmit(uint16_t slot) { TransmitBytes(slot, sizeof(VsockHeader) + header(slot).length); }
  bool TakeReceived(VsockPacket& packet);
  void GiveBack(const VsockPacket& packet) { GiveBuffer(packet.slot); }
};

class VirtioVsock {
 public:
  static constexpr uint16_t kReceive = 0, kTransmit = 1, kEvent = 2;

  bool Open(const PciFunction& function, int index);
  bool Open(const MmioDevice& device, int index);
  // Resets the device and makes it ready; false after a FAIL line.
  bool Start(const VsockOptions& options);

  uint64_t cid() const;
  VirtioTransport& transport() const { return *transport_; }
  VsockPair& pair() { return pair_; }
  Virtqueue& events() { return events_; }

 private:
  bool StartEvents();

  VirtioTransport* transport_ = nullptr;  // one of these two
  VirtioPci pci_;
  VirtioMmio mmio_;
  VsockPair pair_;
  Virtqueue events_;
  uint64_t event_buffers_ = 0;  // a page
};

// The first vsock, opened; null after a FAIL line if there is none.
VirtioVsock* FindVsock();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_VSOCK_H_
