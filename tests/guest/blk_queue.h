// One queue of a virtio-blk device. Requests belong to the caller, any number up to the ring's room
// may be in flight, and completions come back one by one, found by polling or by interrupt. A queue
// is used by one processor at a time, and shares nothing with the other queues.
//
// Who wants less than this for each request drives rings() and notify() as they are.
//
// Source: VIRTIO 1.2, section 5.2.6.

#ifndef RINGSIDE_TESTS_GUEST_BLK_QUEUE_H_
#define RINGSIDE_TESTS_GUEST_BLK_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "virtio_transport.h"
#include "virtqueue.h"
#include "wait.h"

namespace guest {

constexpr uint64_t kSectorSize = 512;

enum BlkType : uint32_t {
  kBlkRead = 0,
  kBlkWrite = 1,
  kBlkFlush = 4,
  kBlkGetId = 8,
  kBlkDiscard = 11,
  kBlkWriteZeroes = 13,
};

enum BlkStatus : uint8_t {
  kBlkOk = 0,
  kBlkIoError = 1,
  kBlkUnsupported = 2,
  kBlkNone = 0xff,  // ours: no answer
};

// Of a discard or write zeroes.
struct BlkRange {
  uint64_t sector;
  uint32_t sectors;
  uint32_t flags;
};

struct BlkRequest {
  static constexpr size_t kMaxData = Virtqueue::kMaxBuffers - 2;

  struct Header {
    uint32_t type;
    uint32_t reserved;
    uint64_t sector;
  };

  // A new request, without data.
  void Set(BlkType type, uint64_t sector);
  void AddData(uint64_t address, uint32_t length);
  bool ok() const { return status == kBlkOk; }

  Header header = {};
  volatile uint8_t status = kBlkNone;
  uint32_t used_length = 0;
  size_t data_count = 0;
  std::array<Buffer, kMaxData> data = {};
};

struct BlkOptions {
  bool event_idx = true;
  bool indirect = true;
  Wait wait = Wait::kPolled;
  uint16_t queue_size = 256;  // or the device's, if that is smaller
  // Queues 0 to queues - 1; the disk must have them. Queue i interrupts processor i if that has
  // been started and the queue has an interrupt of its own, else processor 0.
  uint16_t queues = 1;
};

class alignas(64) BlkQueue {
 public:
  // Makes queue `number` of a device that is between FEATURES_OK and DRIVER_OK ready, interrupting
  // `processor`; false after a FAIL line.
  bool Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
             const BlkOptions& options);
  // From now on, with nothing in flight. Not every device can be started twice: Firecracker's know
  // no reset.
  void SetWait(Wait wait);
  // Finds the doorbell again after it has moved.
  void FindNotify() { notify_ = transport_->Notify(number_); }

  // Puts the request into the ring; false if it is full. The device need not look before Kick.
  bool Submit(BlkRequest& request);
  void Kick();
  // The next completed request, waiting for it as the options say (without a Kick after Submit it
  // may never come); null after a FAIL line if none comes.
  BlkRequest* Next();
  // A completed request, if there is one.
  BlkRequest* NextIfAny();
  // One request from Submit to Next, with nothing else in flight.
  BlkStatus Do(BlkRequest& request);

  // Of all queues of the device, where they share a line.
  uint32_t interrupts() const { return *interrupts_; }
  // Since the guest's start.
  uint64_t kicks() const { return kicks_; }

  Virtqueue& rings() { return rings_; }
  const NotifyRegister& notify() const { return notify_; }

 private:
  bool WaitForInterrupt();
  bool SpinForInterrupt();

  VirtioTransport* transport_ = nullptr;
  uint16_t number_ = 0;
  Wait wait_ = Wait::kPolled;
  Virtqueue rings_;
  NotifyRegister notify_;
  const volatile uint32_t* interrupts_ = nullptr;
  uint64_t kicks_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t interrupts_seen_ = 0;
  bool interrupt_due_ = false;
  BlkRequest** by_head_ = nullptr;  // Virtqueue::kMaxSize
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_BLK_QUEUE_H_
