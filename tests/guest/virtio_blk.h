// A disk: virtio-blk over virtio-pci, on its queue 0. Requests belong to the caller, any number up
// to the ring's room may be in flight, and completions come back one by one, found by polling or by
// interrupt.
//
// Source: VIRTIO 1.2, section 5.2.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_

#include <array>
#include <cstdint>
#include <span>

#include "virtio_pci.h"
#include "virtqueue.h"

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

// Feature bits.
constexpr uint64_t kBlkFeatureSegMax = uint64_t{1} << 2;
constexpr uint64_t kBlkFeatureReadOnly = uint64_t{1} << 5;
constexpr uint64_t kBlkFeatureBlockSize = uint64_t{1} << 6;
constexpr uint64_t kBlkFeatureFlush = uint64_t{1} << 9;
constexpr uint64_t kBlkFeatureTopology = uint64_t{1} << 10;
constexpr uint64_t kBlkFeatureConfigWce = uint64_t{1} << 11;
constexpr uint64_t kBlkFeatureMultiQueue = uint64_t{1} << 12;
constexpr uint64_t kBlkFeatureDiscard = uint64_t{1} << 13;
constexpr uint64_t kBlkFeatureWriteZeroes = uint64_t{1} << 14;

// Offsets in the device configuration.
namespace blk_config {
constexpr uint64_t kCapacity = 0;
constexpr uint64_t kSegMax = 12;
constexpr uint64_t kBlockSize = 20;
constexpr uint64_t kWriteBack = 32;
constexpr uint64_t kQueueCount = 34;
}  // namespace blk_config

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

enum class Wait { kPolled, kInterrupt };

class VirtioBlk {
 public:
  struct Options {
    bool event_idx = true;
    bool indirect = true;
    Wait wait = Wait::kPolled;
    uint16_t queue_size = 256;  // or the device's, if that is smaller
  };

  bool Open(const PciFunction& function, int index);
  // Resets the device and makes it ready; false after a FAIL line.
  bool Start(const Options& options);

  // In the order of the bus.
  int index() const { return index_; }
  uint64_t sectors() const { return sectors_; }
  uint64_t block_sectors() const { return block_sectors_; }
  bool read_only() const { return (offered_ & kBlkFeatureReadOnly) != 0; }
  bool Offers(uint64_t feature) const { return (offered_ & feature) != 0; }
  // Whether a completed write may still need a flush.
  bool write_back() const;

  // Puts the request into the ring; false if it is full. The device need not look before Kick.
  bool Submit(BlkRequest& request);
  void Kick();
  // The next completed request, waiting for it as the options say (without a Kick after Submit it
  // may never come); null after a FAIL line if none
  // comes.
  BlkRequest* Next();
  // A completed request, if there is one.
  BlkRequest* NextIfAny();
  // One request from Submit to Next, with nothing else in flight.
  BlkStatus Do(BlkRequest& request);

  uint32_t interrupts() const { return MessageCount(queue_slot()); }
  uint64_t kicks() const { return kicks_; }

  VirtioPci& pci() { return pci_; }
  Virtqueue& queue() { return queue_; }
  // MSI-X entries and the message slots they are routed to.
  static constexpr uint16_t kConfigEntry = 0;
  static constexpr uint16_t kQueueEntry = 1;
  int config_slot() const { return 2 * index_; }
  int queue_slot() const { return 2 * index_ + 1; }

 private:
  bool WaitForInterrupt();
  bool SpinForInterrupt();

  int index_ = 0;
  Options options_;
  VirtioPci pci_;
  Virtqueue queue_;
  uint64_t offered_ = 0;
  uint64_t sectors_ = 0;
  uint64_t block_sectors_ = 1;
  uint64_t kicks_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t interrupts_seen_ = 0;
  bool interrupt_due_ = false;
  std::array<BlkRequest*, Virtqueue::kMaxSize> by_head_ = {};
};

// All disks of bus 0, opened; the first call looks for them.
std::span<VirtioBlk> Disks();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_
