// A region of guest memory: guest physical addresses behind which is a mapping of the host's that
// knows its descriptor and offset, so that another process or a DMA engine can be given it.
//
// Ownership: whoever made the mapping keeps it, and its descriptor, for as long as anyone uses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringside {

struct MemoryRegion {
  uint64_t guest_address;
  uint64_t size;       // bytes
  std::byte* host;     // where guest_address is mapped
  int fd;              // memfd behind the mapping; -1: none, and it cannot be shared
  uint64_t fd_offset;  // of guest_address in fd
  uint16_t index;      // among all regions

  // Guest-controlled arguments are welcome: nothing here overflows.
  bool Contains(uint64_t address, uint64_t length) const {
    const uint64_t offset = address - guest_address;  // wraps to huge if below
    return offset < size && length <= size - offset;
  }
  // Of an address it contains.
  std::byte* At(uint64_t address) const { return host + (address - guest_address); }
};

}  // namespace ringside
