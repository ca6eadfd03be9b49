// A receive and a transmit queue as lean as a driver can have them: each buffer has a descriptor of
// its own, written once and used again and again, so that a packet costs an entry of the available
// ring and its index. What is in the buffers is the driver's (net_pair.h, virtio_vsock.h).
//
// Source: VIRTIO 1.2, section 2.7.

#ifndef RINGSIDE_TESTS_GUEST_QUEUE_PAIR_H_
#define RINGSIDE_TESTS_GUEST_QUEUE_PAIR_H_

#include <cstdint>

#include "virtio_transport.h"
#include "virtqueue.h"
#include "wait.h"

namespace guest {

struct QueuePairOptions {
  uint16_t queue_size = 256;    // or the device's, if that is smaller
  uint32_t receive_bytes = 0;   // of a buffer
  uint32_t transmit_bytes = 0;  // of a buffer
  Wait wait = Wait::kPolled;
  bool buffers = true;  // receive buffers are there from the start
};

class QueuePair {
 public:
  static constexpr uint16_t kMaxSlots = 256;

  // Makes queues `first` (receive) and the one behind it (transmit) of a device that is between
  // FEATURES_OK and DRIVER_OK ready, interrupting `processor`; false after a FAIL line. Memory is
  // allocated when larger buffers are asked for than before.
  bool Start(VirtioTransport& transport, uint16_t first, uint32_t processor,
             const QueuePairOptions& options);
  // From now on, with nothing under way.
  void SetWait(Wait wait);

  uint16_t slots() const { return transmit_.rings.size(); }
  bool TakeTransmitted(uint16_t& slot);
  // Shows the device what was added; kicks if it wants that.
  void Flush();
  // Returns when there is what `wake` says, or at the tick `deadline`; false if there was work but
  // no interrupt told of it.
  bool WaitForWork(Wake wake, uint64_t deadline);

  uint64_t kicks() const { return receive_.kicks + transmit_.kicks; }
  // Of all queues of the device, where they share a line.
  uint64_t interrupts() const {
    const uint32_t of_receive = *receive_.interrupts;
    if (receive_.interrupts == transmit_.interrupts) return of_receive;
    return of_receive + *transmit_.interrupts;
  }
  // How many times the device has broken a rule that taking a buffer looks at.
  uint64_t faults() const { return faults_; }

  Virtqueue& receive_rings() { return receive_.rings; }
  Virtqueue& transmit_rings() { return transmit_.rings; }

 protected:
  uint64_t ReceiveBuffer(uint16_t slot) const { return BufferOf(receive_, slot); }
  uint64_t TransmitBuffer(uint16_t slot) const { return BufferOf(transmit_, slot); }
  void TransmitBytes(uint16_t slot, uint64_t bytes);
  // The next receive buffer that the device has used, if any, and how much it wrote.
  bool TakeBuffer(uint16_t& slot, uint32_t& length);
  void GiveBuffer(uint16_t slot);
  void AddFault() { ++faults_; }

 private:
  struct Side {
    Virtqueue rings;
    NotifyRegister notify;
    const volatile uint32_t* interrupts = nullptr;
    uint64_t kicks = 0;
    uint64_t buffers = 0;       // one behind the other
    uint32_t buffer_bytes = 0;  // of each now
    uint32_t most_bytes = 0;    // of each that there is memory for
    bool added = false;         // since the last Flush
  };

  static bool StartSide(Side& side, VirtioTransport& transport, uint16_t queue, uint32_t processor,
                        uint32_t buffer_bytes, uint16_t most);
  static uint64_t BufferOf(const Side& side, uint16_t slot) {
    return side.buffers + uint64_t{slot} * side.buffer_bytes;
  }
  static void FlushSide(Side& side);
  bool HasWork(Wake wake) const;

  Side receive_;
  Side transmit_;
  Wait wait_ = Wait::kPolled;
  uint64_t faults_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_QUEUE_PAIR_H_
