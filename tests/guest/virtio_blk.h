// A disk: virtio-blk over either transport, with one queue or several.
//
// Source: VIRTIO 1.2, section 5.2.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_

#include <array>
#include <cstdint>
#include <span>

#include "blk_queue.h"
#include "virtio_mmio.h"
#include "virtio_pci.h"
#include "virtqueue.h"

namespace guest {

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

class VirtioBlk {
 public:
  using Options = BlkOptions;

  bool Open(const PciFunction& function, int index);
  bool Open(const MmioDevice& device, int index);
  // Resets the device and makes it ready; false after a FAIL line.
  bool Start(const Options& options);

  // In the order in which they were found.
  int index() const { return index_; }
  uint64_t sectors() const { return sectors_; }
  uint64_t block_sectors() const { return block_sectors_; }
  bool read_only() const { return (offered_ & kBlkFeatureReadOnly) != 0; }
  bool Offers(uint64_t feature) const { return (offered_ & feature) != 0; }
  // Whether a completed write may still need a flush.
  bool write_back() const;
  // How many the device has.
  uint16_t queue_count() const;

  VirtioTransport& transport() { return *transport_; }
  bool on_pci() const { return transport_ == &pci_; }
  // Of a disk on PCI only.
  VirtioPci& pci() { return pci_; }
  // Finds all registers again after a BAR has moved.
  void FindAddresses();

  // Those that have been started.
  std::span<BlkQueue> queues() { return {queues_.data(), started_}; }

  // Queue 0, which is all that most users know.
  Virtqueue& queue() { return queues_[0].rings(); }
  bool Submit(BlkRequest& request) { return queues_[0].Submit(request); }
  void Kick() { queues_[0].Kick(); }
  BlkRequest* Next() { return queues_[0].Next(); }
  BlkRequest* NextIfAny() { return queues_[0].NextIfAny(); }
  BlkStatus Do(BlkRequest& request) { return queues_[0].Do(request); }
  uint32_t interrupts() const { return queues_[0].interrupts(); }
  uint64_t kicks() const { return queues_[0].kicks(); }

 private:
  int index_ = 0;
  VirtioTransport* transport_ = nullptr;  // one of these two
  VirtioPci pci_;
  VirtioMmio mmio_;
  std::array<BlkQueue, VirtioTransport::kMaxQueues> queues_;
  size_t started_ = 0;
  uint64_t offered_ = 0;
  uint64_t sectors_ = 0;
  uint64_t block_sectors_ = 1;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_BLK_H_
