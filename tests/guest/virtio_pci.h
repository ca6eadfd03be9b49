// A modern virtio device on PCI: its register structures, and a message for each queue. The hostile
// checks use it directly.
//
// Source: VIRTIO 1.2, section 4.1.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_

#include <cstdint>

#include "machine.h"
#include "msix.h"
#include "pci.h"
#include "virtio_transport.h"
#include "virtqueue.h"

namespace guest {

constexpr uint16_t kVirtioVendor = 0x1af4;
// PCI device IDs of modern devices follow from those of VIRTIO (section 4.1.2).
constexpr uint16_t kVirtioModernDevices = 0x1040;

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

class VirtioPci final : public VirtioTransport {
 public:
  // Messages (msix.h): one for configuration changes, one for each queue.
  static constexpr int kMaxMessages = 1 + kMaxQueues;
  static constexpr uint16_t kConfigEntry = 0;
  static constexpr uint16_t QueueEntry(uint16_t queue) { return static_cast<uint16_t>(1 + queue); }
  int QueueSlot(uint16_t queue) const { return first_slot_ + QueueEntry(queue); }

  // A register structure in a BAR; length 0: there is none.
  struct Structure {
    int bar = 0;
    uint32_t offset = 0;
    uint32_t length = 0;
    uint64_t address = 0;
  };

  // Finds the structures, places their BARs, switches memory decode and bus mastering on, and takes
  // slots for its messages. Prints a FAIL line and returns false if something needed is not there.
  bool Open(const PciFunction& function);
  // Finds the structures' addresses again after a BAR has moved.
  void FindAddresses();

  const PciFunction& function() const { return function_; }
  Msix& msix() { return msix_; }

  std::string_view name() const override { return "pci"; }
  uint8_t status() const override {
    return Load<uint8_t>(common_.address + common_config::kStatus);
  }
  void SetStatus(uint8_t status) const override {
    Store<uint8_t>(common_.address + common_config::kStatus, status);
  }
  uint64_t OfferedFeatures() const override;
  void EnableInterrupts() override;
  uint16_t MaxQueueSize(uint16_t queue) const override;
  bool EnableQueue(uint16_t queue, const Virtqueue& rings, uint32_t processor) override;
  NotifyRegister Notify(uint16_t queue) const override;
  const volatile uint32_t& InterruptCounter(uint16_t queue) const override {
    return MessageCounter(QueueSlot(queue));
  }

  uint16_t queue_count() const {
    return Load<uint16_t>(common_.address + common_config::kQueueCount);
  }
  void Kick(uint16_t queue) const { Notify(queue).Kick(); }

  // ---- Raw ----
  const Structure& common() const { return common_; }
  const Structure& notify() const { return notify_; }
  const Structure& isr() const { return isr_; }
  const Structure& device() const { return device_; }
  uint32_t notify_multiplier() const { return notify_multiplier_; }

 private:
  void ReadCapabilities();
  void AcceptFeatures(uint64_t features) const override;
  uint64_t config_address() const override { return device_.address; }

  PciFunction function_;
  Msix msix_;
  Structure common_;
  Structure notify_;
  Structure isr_;
  Structure device_;
  uint32_t notify_multiplier_ = 0;
  int first_slot_ = 0;
  uint16_t notify_offset_[kMaxQueues] = {};
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_PCI_H_
