// A receive and a transmit queue of a network, as lean as a driver can be: each buffer has a
// descriptor of its own, written once and used again and again, so that a frame costs an entry of
// the available ring and its index. A Port of net_load.h.
//
// Source: VIRTIO 1.2, section 5.1.6.

#ifndef RINGSIDE_TESTS_GUEST_NET_PAIR_H_
#define RINGSIDE_TESTS_GUEST_NET_PAIR_H_

#include <cstdint>

#include "net_load.h"
#include "virtio_transport.h"
#include "virtqueue.h"
#include "wait.h"

namespace guest {

struct NetOptions {
  bool event_idx = true;
  // Buffers of less than a frame, of which a frame then takes several.
  bool small_buffers = false;
  Wait wait = Wait::kPolled;
  uint16_t queue_size = 256;  // or the device's, if that is smaller
  uint16_t pairs = 1;         // the device must have them
  bool control = false;       // the control queue too; there with several pairs
  bool buffers = true;        // receive buffers are there from the start
};

// Section 5.1.6; since VERSION_1 always of this size.
struct NetHeader {
  uint8_t flags = 0;
  uint8_t segmentation = 0;
  uint16_t header_length = 0;
  uint16_t segment_size = 0;
  uint16_t checksum_start = 0;
  uint16_t checksum_offset = 0;
  uint16_t buffers = 0;  // received: how many the frame has taken
};
static_assert(sizeof(NetHeader) == 12);
constexpr uint8_t kNetNeedsChecksum = 1;

class NetPair {
 public:
  static constexpr uint32_t kBufferBytes = 2048;
  static constexpr uint32_t kSmallBufferBytes = 256;

  // Makes both queues of pair `number` of a device that is between FEATURES_OK and DRIVER_OK ready,
  // interrupting `processor`, with all receive buffers there; false after a FAIL line.
  bool Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
             const NetOptions& options);
  // From now on, with nothing under way.
  void SetWait(Wait wait);

  uint16_t slots() const { return transmit_.rings.size(); }
  uint8_t* frame(uint16_t slot) {
    return reinterpret_cast<uint8_t*>(BufferOf(transmit_, slot) + sizeof(NetHeader));
  }
  // The header that goes with it; all zeroes at first.
  NetHeader& header(uint16_t slot) {
    return *reinterpret_cast<NetHeader*>(BufferOf(transmit_, slot));
  }
  void Transmit(uint16_t slot, uint64_t length);
  bool TakeTransmitted(uint16_t& slot);
  bool TakeReceived(NetFrame& frame);
  void GiveBack(const NetFrame& frame);
  void Flush();
  bool WaitForWork(Wake wake, uint64_t deadline);

  uint64_t kicks() const { return receive_.kicks + transmit_.kicks; }
  // Of all queues of the device, where they share a line.
  uint64_t interrupts() const {
    const uint32_t of_receive = *receive_.interrupts;
    if (receive_.interrupts == transmit_.interrupts) return of_receive;
    return of_receive + *transmit_.interrupts;
  }
  // How many times the device has broken a rule that TakeReceived or TakeTransmitted looks at.
  uint64_t faults() const { return faults_; }

  Virtqueue& receive_rings() { return receive_.rings; }
  Virtqueue& transmit_rings() { return transmit_.rings; }

 private:
  struct Side {
    Virtqueue rings;
    NotifyRegister notify;
    const volatile uint32_t* interrupts = nullptr;
    uint64_t kicks = 0;
    uint64_t buffers = 0;  // one behind the other
    uint32_t buffer_bytes = 0;
    bool added = false;  // since the last Flush
  };

  bool StartSide(Side& side, VirtioTransport& transport, uint16_t queue, uint32_t processor,
                 const NetOptions& options);
  static uint64_t BufferOf(const Side& side, uint16_t slot) {
    return side.buffers + uint64_t{slot} * side.buffer_bytes;
  }
  static void FlushSide(Side& side);
  bool TakeBuffer(uint16_t& slot, uint32_t& length);
  bool Gather(NetFrame& frame, uint32_t first_length, uint16_t buffers);
  bool HasWork(Wake wake) const;

  Side receive_;
  Side transmit_;
  Wait wait_ = Wait::kPolled;
  uint64_t faults_ = 0;
  uint8_t* gathered_ = nullptr;  // a frame of several buffers
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_PAIR_H_
