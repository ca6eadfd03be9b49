// What a virtio driver needs of the bus its device sits on: the status machine, queue set-up, the
// device configuration, where to kick and where interrupts are counted. VirtioPci and VirtioMmio
// are the two there are.
//
// Nothing virtual is called for a request: a driver fetches a queue's NotifyRegister and interrupt
// counter when it has enabled the queue.
//
// Source: VIRTIO 1.2, sections 2.1, 3.1 and 4.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_TRANSPORT_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_TRANSPORT_H_

#include <cstdint>
#include <string_view>

#include "machine.h"
#include "virtqueue.h"

namespace guest {

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

// A kick is one store of `value`: 16 bits wide on PCI (section 4.1.5.2), 32 on MMIO (4.2.2).
struct NotifyRegister {
  enum class Width : uint8_t { k16Bits, k32Bits };

  uint64_t address = 0;
  uint16_t value = 0;
  Width width = Width::k16Bits;

  void Kick() const {
    if (width == Width::k16Bits) {
      Store<uint16_t>(address, value);
    } else {
      Store<uint32_t>(address, value);
    }
  }
};

class VirtioTransport {
 public:
  static constexpr uint16_t kMaxQueues = 17;  // eight pairs of a network and its control queue

  // As the word transport= calls it.
  virtual std::string_view name() const = 0;

  virtual uint8_t status() const = 0;
  virtual void SetStatus(uint8_t status) const = 0;
  bool NeedsReset() const { return (status() & virtio_status::kNeedsReset) != 0; }

  // Resets and waits until the device says it is done; false after a FAIL line.
  bool Reset() const;
  virtual uint64_t OfferedFeatures() const = 0;
  // From after a reset to FEATURES_OK: accepts what is offered of `wanted`, and VERSION_1.
  bool Negotiate(uint64_t wanted);
  uint64_t features() const { return features_; }
  void SetDriverOk() const;

  // Lets the device's interrupts in. After a reset, before the queues.
  virtual void EnableInterrupts() = 0;
  // 0: there is no such queue.
  virtual uint16_t MaxQueueSize(uint16_t queue) const = 0;
  // Queues are below kMaxQueues. The queue interrupts the processor with this APIC ID, if it has an
  // interrupt of its own, else processor 0.
  virtual bool EnableQueue(uint16_t queue, const Virtqueue& rings, uint32_t processor) = 0;
  virtual NotifyRegister Notify(uint16_t queue) const = 0;
  // Counts the interrupts of this queue, or of all queues where they share a line.
  virtual const volatile uint32_t& InterruptCounter(uint16_t queue) const = 0;

  // A field of the device configuration, one access of its width. There are none of 64 bits: those
  // fields are accessed as two halves (sections 4.1.3.1 and 4.2.2.2).
  template <typename T>
  T Config(uint64_t offset) const {
    static_assert(sizeof(T) <= 4);
    return Load<T>(config_address() + offset);
  }
  template <typename T>
  void SetConfig(uint64_t offset, T value) const {
    static_assert(sizeof(T) <= 4);
    Store<T>(config_address() + offset, value);
  }

 protected:
  constexpr VirtioTransport() = default;
  ~VirtioTransport() = default;

  virtual void AcceptFeatures(uint64_t features) const = 0;
  virtual uint64_t config_address() const = 0;

 private:
  uint64_t features_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_TRANSPORT_H_
