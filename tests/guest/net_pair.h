// A pair of queues of a network: the frames in its buffers, behind their headers. A Port of
// net_load.h.
//
// Source: VIRTIO 1.2, section 5.1.6.

#ifndef RINGSIDE_TESTS_GUEST_NET_PAIR_H_
#define RINGSIDE_TESTS_GUEST_NET_PAIR_H_

#include <cstdint>

#include "net_load.h"
#include "queue_pair.h"

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

class NetPair : public QueuePair {
 public:
  static constexpr uint32_t kBufferBytes = 2048;
  static constexpr uint32_t kSmallBufferBytes = 256;
  static_assert(kMaxSlots >= kMaxNetDepth);

  // Pair `number`; otherwise as QueuePair::Start.
  bool Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
             const NetOptions& options);

  uint8_t* frame(uint16_t slot) {
    return reinterpret_cast<uint8_t*>(TransmitBuffer(slot) + sizeof(NetHeader));
  }
  // The header that goes with it; all zeroes at first.
  NetHeader& header(uint16_t slot) { return *reinterpret_cast<NetHeader*>(TransmitBuffer(slot)); }
  void Transmit(uint16_t slot, uint64_t length) { TransmitBytes(slot, sizeof(NetHeader) + length); }
  bool TakeReceived(NetFrame& frame);
  void GiveBack(const NetFrame& frame);

 private:
  bool Gather(NetFrame& frame, uint32_t first_length, uint16_t buffers);

  uint8_t* gathered_ = nullptr;  // a frame of several buffers
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_PAIR_H_
