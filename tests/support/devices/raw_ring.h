// A split virtqueue in guest memory, written field by field: for what no driver would do.
//
// Threads: one at a time; the other side is the device.
// Source: VIRTIO 1.2, section 2.7.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "devices/guest_memory.h"

namespace ringside::testing {

inline constexpr uint16_t kNext = 1;
inline constexpr uint16_t kWrite = 2;
inline constexpr uint16_t kIndirect = 4;

struct RawDescriptor {
  uint64_t address = 0;
  uint32_t length = 0;
  uint16_t flags = 0;
  uint16_t next = 0;
};
static_assert(sizeof(RawDescriptor) == 16);

struct UsedElement {
  uint32_t head = 0;
  uint32_t written = 0;
  bool operator==(const UsedElement&) const = default;
};

// Where the parts lie, one after the other from `address`, each aligned to 4096 bytes.
struct RingPlace {
  uint16_t size;
  uint64_t descriptors, available, used, end;

  RingPlace(uint64_t address, uint16_t ring_size)
      : size(ring_size),
        descriptors(address),
        available(AlignUp(descriptors + uint64_t{16} * size)),
        used(AlignUp(available + 6 + uint64_t{2} * size)),
        end(AlignUp(used + 6 + uint64_t{8} * size)) {}

 private:
  static uint64_t AlignUp(uint64_t address) { return (address + 4095) / 4096 * 4096; }
};

class RawRing {
 public:
  // Zeroes the rings, as a driver does (section 4.1.5.1.3). Aborts if they do not lie in memory.
  RawRing(const GuestMemory& memory, const RingPlace& place)
      : memory_(memory),
        place_(place),
        descriptors_(At(place.descriptors, uint64_t{16} * place.size)),
        available_(At(place.available, 6 + uint64_t{2} * place.size)),
        used_(At(place.used, 6 + uint64_t{8} * place.size)) {
    Zero();
  }

  void Zero() {
    std::memset(descriptors_, 0, size_t{16} * size());
    std::memset(available_, 0, 6 + size_t{2} * size());
    std::memset(used_, 0, 6 + size_t{8} * size());
  }

  const RingPlace& place() const { return place_; }
  uint16_t size() const { return place_.size; }

  void SetDescriptor(uint16_t index, const RawDescriptor& descriptor) {
    std::memcpy(descriptors_ + 16 * size_t{index}, &descriptor, sizeof descriptor);
  }
  RawDescriptor descriptor(uint16_t index) const {
    RawDescriptor descriptor;
    std::memcpy(&descriptor, descriptors_ + 16 * size_t{index}, sizeof descriptor);
    return descriptor;
  }
  // In an indirect table.
  void SetDescriptorAt(uint64_t table, uint16_t index, const RawDescriptor& descriptor) {
    std::memcpy(At(table + 16 * uint64_t{index}, 16), &descriptor, sizeof descriptor);
  }

  // To the one behind it.
  void LinkAt(uint64_t table, uint32_t index) {
    std::byte* host = At(table + 16 * uint64_t{index}, 16);
    RawDescriptor descriptor;
    std::memcpy(&descriptor, host, sizeof descriptor);
    descriptor.flags |= kNext;
    descriptor.next = static_cast<uint16_t>(index + 1);
    std::memcpy(host, &descriptor, sizeof descriptor);
  }

  void SetAvailableEntry(uint16_t index, uint16_t head) {
    std::memcpy(available_ + 4 + 2 * size_t{Wrap(index)}, &head, sizeof head);
  }
  // Release: pairs with the device's acquire in Virtqueue::Take.
  void SetAvailableIndex(uint16_t index) {
    Shared(available_ + 2).store(index, std::memory_order_release);
  }
  uint16_t available_index() const {
    return Shared(available_ + 2).load(std::memory_order_relaxed);
  }
  void SetAvailableFlags(uint16_t flags) {
    Shared(available_).store(flags, std::memory_order_relaxed);
  }
  void SetUsedEvent(uint16_t event) {
    Shared(available_ + 4 + 2 * size_t{size()}).store(event, std::memory_order_relaxed);
  }

  // Acquire: pairs with the device's release in Virtqueue::Publish.
  uint16_t used_index() const { return Shared(used_ + 2).load(std::memory_order_acquire); }
  uint16_t used_flags() const { return Shared(used_).load(std::memory_order_relaxed); }
  uint16_t avail_event() const {
    return Shared(used_ + 4 + 8 * size_t{size()}).load(std::memory_order_relaxed);
  }
  // What only a device would write.
  void SetUsedElement(uint16_t index, const UsedElement& element) {
    std::memcpy(used_ + 4 + 8 * size_t{Wrap(index)}, &element, sizeof element);
  }
  UsedElement used_element(uint16_t index) const {
    UsedElement element;
    std::memcpy(&element, used_ + 4 + 8 * size_t{Wrap(index)}, sizeof element);
    return element;
  }

 private:
  static std::atomic_ref<uint16_t> Shared(std::byte* address) {
    return std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(address));
  }
  std::byte* At(uint64_t address, uint64_t length) const {
    std::byte* host = memory_.At(address, length);
    if (host == nullptr) std::abort();
    return host;
  }
  uint16_t Wrap(uint16_t index) const { return index & static_cast<uint16_t>(size() - 1); }

  const GuestMemory& memory_;
  const RingPlace place_;
  std::byte* const descriptors_;
  std::byte* const available_;
  std::byte* const used_;
};

// Whether an index that went from `old_index` to `new_index` passed `event` (section 2.7.7.2): the
// next index after `event` is one of those that are new. Counted, not calculated, since this is
// what calculations are held against.
inline bool PassedEvent(uint16_t event, uint16_t new_index, uint16_t old_index) {
  for (uint16_t index = old_index; index != new_index; ++index) {
    if (index == event) return true;
  }
  return false;
}

}  // namespace ringside::testing
