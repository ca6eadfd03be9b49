// A descriptor of a split virtqueue, as it stands in guest memory.
//
// Spec: VIRTIO 1.2, section 2.7.5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "devices/guest_memory.h"

namespace ringside {

inline constexpr uint16_t kDescNext = 1;
inline constexpr uint16_t kDescWrite = 2;
inline constexpr uint16_t kDescIndirect = 4;
inline constexpr uint64_t kDescriptorSize = 16;

// Of a table, read once.
struct Descriptor {
  Descriptor(const std::byte* table, uint32_t index)
      : address(ReadOnce<uint64_t>(table + kDescriptorSize * index)),
        rest(ReadOnce<uint64_t>(table + kDescriptorSize * index + 8)) {}
  uint32_t length() const { return static_cast<uint32_t>(rest); }
  uint16_t flags() const { return static_cast<uint16_t>(rest >> 32); }
  uint16_t next() const { return static_cast<uint16_t>(rest >> 48); }
  // Whether it has exactly these.
  bool Is(uint32_t length, uint16_t flags) const {
    return (rest & 0xffff'ffff'ffff) == (uint64_t{flags} << 32 | length);
  }

  uint64_t address;
  uint64_t rest;
};

}  // namespace ringside
