// Guest memory for devices that reach it by DMA.
#pragma once

#include "base/memory_region.h"
#include "block/block_device.h"
#include "tests/support/shared_pages.h"

namespace ringside::testing {

// Guest memory, of which tests take pieces where they want them.
class DmaMemory {
 public:
  static constexpr uint64_t kSize = uint64_t{16} << 20;
  static constexpr uint64_t kGuestAddress = 0x100000;

  Segment At(uint64_t offset, uint32_t length) const {
    return {.host = pages_.host() + offset, .length = length, .region = 0};
  }
  MemoryRegion region() const {
    return {.guest_address = kGuestAddress,
            .size = kSize,
            .host = pages_.host(),
            .fd = pages_.fd(),
            .fd_offset = 0,
            .index = 0};
  }

 private:
  const SharedPages pages_{kSize};
};

}  // namespace ringside::testing
