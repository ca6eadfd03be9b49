// A modern virtio device on MMIO: one window of registers, one interrupt line for all of it, which
// goes to processor 0 through a pin of the I/O APIC.
//
// Source: VIRTIO 1.2, section 4.2.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_MMIO_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_MMIO_H_

#include <cstdint>
#include <string_view>

#include "machine.h"
#include "virtio_transport.h"

namespace guest {

// Section 4.2.2.
namespace mmio_register {
constexpr uint64_t kMagic = 0x000;
constexpr uint64_t kVersion = 0x004;
constexpr uint64_t kDeviceId = 0x008;
constexpr uint64_t kDeviceFeatures = 0x010;
constexpr uint64_t kDeviceFeaturesSelect = 0x014;
constexpr uint64_t kDriverFeatures = 0x020;
constexpr uint64_t kDriverFeaturesSelect = 0x024;
constexpr uint64_t kQueueSelect = 0x030;
constexpr uint64_t kQueueSizeMax = 0x034;
constexpr uint64_t kQueueSize = 0x038;
constexpr uint64_t kQueueReady = 0x044;
constexpr uint64_t kQueueNotify = 0x050;
constexpr uint64_t kInterruptStatus = 0x060;
constexpr uint64_t kInterruptAck = 0x064;
constexpr uint64_t kStatus = 0x070;
constexpr uint64_t kQueueDescriptors = 0x080;  // 64 bits each, written as two halves
constexpr uint64_t kQueueDriver = 0x090;
constexpr uint64_t kQueueDevice = 0x0a0;
constexpr uint64_t kConfig = 0x100;
}  // namespace mmio_register

// Where a device is.
struct MmioDevice {
  uint64_t address = 0;
  uint8_t pin = 0;

  // From SIZE@ADDRESS:IRQ; false if that is not what it is, or is where the guest cannot reach.
  bool Parse(std::string_view word);
  // The virtio device that is there (section 5), 0 if there is none.
  uint32_t Id() const;
};

class VirtioMmio final : public VirtioTransport {
 public:
  // Routes the interrupt. Prints a FAIL line and returns false if the device is a legacy one.
  bool Open(const MmioDevice& device);

  std::string_view name() const override { return "mmio"; }
  uint8_t status() const override { return static_cast<uint8_t>(Get(mmio_register::kStatus)); }
  void SetStatus(uint8_t status) const override { Set(mmio_register::kStatus, status); }
  uint64_t OfferedFeatures() const override;
  void EnableInterrupts() override;
  uint16_t MaxQueueSize(uint16_t queue) const override;
  bool EnableQueue(uint16_t queue, const Virtqueue& rings, uint32_t processor) override;
  NotifyRegister Notify(uint16_t queue) const override;
  const volatile uint32_t& InterruptCounter(uint16_t queue) const override;

 private:
  uint32_t Get(uint64_t at) const { return Load<uint32_t>(device_.address + at); }
  void Set(uint64_t at, uint32_t value) const { Store<uint32_t>(device_.address + at, value); }
  void AcceptFeatures(uint64_t features) const override;
  uint64_t config_address() const override { return device_.address + mmio_register::kConfig; }

  MmioDevice device_;
  size_t line_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_MMIO_H_
