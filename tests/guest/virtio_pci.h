// A modern virtio device on PCI: its register structures, the status machine, queues, doorbells.
//
// Source: VIRTIO 1.2, sections 3.1 (initialisation) and 4.1 (PCI).

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_

#include <cstdint>

#include "machine.h"
#include "msix.h"
#include "pci.h"
#include "virtqueue.h"

namespace guest {

constexpr uint16_t kVirtioVendor = 0x1af4;
constexpr uint16_t kVirtioBlockDevice = 0x1042;

// Section 2.1.
namespace virtio_status {
constexpr uint8_t kAcknowledge = 1;
constexpr uint8_t kDriver = 2;
constexpr uint8_t kDriverOk = 4;
constexpr uint8_t kFeaturesOk = 8;
constexpr uint8_t kNeedsReset = 64;
}  // namespace virtio_status

// Section 6.
constexpr uint64_t kFeatureIndirect = uint64_t{1} << 28;
constexpr uint64_t kFeatureEventIdx = uint64_t{1} << 29;
constexpr uint64_t kFeatureVersion1 = uint64_t{1} << 32;

// Offsets in the common configuration, section 4.1.4.3.
namespace common_config {
constexpr uint64_t kDeviceFeatureSelect = 0;
constexpr uint64_t kDeviceFeature = 4;
constexpr uint64_t kDriverFeatureSelect = 8;
constexpr uint64_t kDriverFeature = 12;
constexpr uint64_t kConfigVector = 16;
constexpr uint64_t kQueueCount = 18;
constexpr uint64_t kStatus = 20;
constexpr uint64_t kGeneration = 21;
constexpr uint64_t kQueueSelect = 22;
constexpr uint64_t kQueueSize = 24;
constexpr uint64_t kQueueVector = 26;
constexpr uint64_t kQueueEnable = 28;
constexpr uint64_t kQueueNotifyOffset = 30;
constexpr uint64_t kQueueDescriptors = 32;  // 64 bits each, written as two halves
constexpr uint64_t kQueueDriver = 40;
constexpr uint64_t kQueueDevice = 48;
constexpr uint64_t kSize = 56;
}  // namespace common_config

constexpr uint16_t kNoVector = 0xffff;

class VirtioPci {
 public:
  // A register structure in a BAR; length 0: there is none.
  struct Structure {
    int bar = 0;
    uint32_t offset = 0;
    uint32_t length = 0;
    uint64_t address = 0;
  };

  // Finds the structures, places their BARs, and switches memory decode and bus mastering on.
  // Prints a FAIL line and returns false if something needed is not there.
  bool Open(const PciFunction& function);
  // Finds the structures' addresses again after a BAR has moved.
  void FindAddresses();

  const PciFunction& function() const { return function_; }
  Msix& msix() { return msix_; }

  uint8_t status() const { return Load<uint8_t>(common_.address + common_config::kStatus); }
  void SetStatus(uint8_t status) const {
    Store<uint8_t>(common_.address + common_config::kStatus, status);
  }
  bool NeedsReset() const { return (status() & virtio_status::kNeedsReset) != 0; }

  // Resets and waits until the device says it is done.
  bool Reset() const;
  uint64_t OfferedFeatures() const;
  // From after a reset to FEATURES_OK: accepts what is offered of `wanted`, and VERSION_1.
  bool Negotiate(uint64_t wanted);
  uint64_t features() const { return features_; }

  uint16_t queue_count() const {
    return Load<uint16_t>(common_.address + common_config::kQueueCount);
  }
  uint16_t MaxQueueSize(uint16_t queue) const;
  // `entry` is the MSI-X table entry it interrupts by, or kNoVector.
  bool EnableQueue(uint16_t queue, const Virtqueue& rings, uint16_t entry);
  void SetDriverOk() const;
  void Kick(uint16_t queue) const;

  template <typename T>
  T Config(uint64_t offset) const {
    return Load<T>(device_.address + offset);
  }
  template <typename T>
  void SetConfig(uint64_t offset, T value) const {
    Store<T>(device_.address + offset, value);
  }

  // ---- Raw ----
  const Structure& common() const { return common_; }
  const Structure& notify() const { return notify_; }
  const Structure& isr() const { return isr_; }
  const Structure& device() const { return device_; }
  uint32_t notify_multiplier() const { return notify_multiplier_; }

 private:
  void ReadCapabilities();
  uint64_t NotifyAddress(uint16_t queue) const;

  static constexpr uint16_t kMaxQueues = 16;

  PciFunction function_;
  Msix msix_;
  Structure common_;
  Structure notify_;
  Structure isr_;
  Structure device_;
  uint32_t notify_multiplier_ = 0;
  uint64_t features_ = 0;
  uint16_t notify_offset_[kMaxQueues] = {};
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_
