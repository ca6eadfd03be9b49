// What a virtio-blk driver writes into its requests (VIRTIO 1.2, section 5.2.6), in numbers of the
// specification, not of the code under test.
#pragma once

#include <cstdint>

namespace ringside::testing {

inline constexpr uint32_t kBlkIn = 0;
inline constexpr uint32_t kBlkOut = 1;
inline constexpr uint32_t kBlkFlush = 4;
inline constexpr uint32_t kBlkGetId = 8;
inline constexpr uint32_t kBlkDiscard = 11;
inline constexpr uint32_t kBlkWriteZeroes = 13;

inline constexpr uint8_t kBlkOk = 0;
inline constexpr uint8_t kBlkIoError = 1;
inline constexpr uint8_t kBlkUnsupported = 2;

struct BlkHeader {
  uint32_t type = 0;
  uint32_t reserved = 0;
  uint64_t sector = 0;
};
static_assert(sizeof(BlkHeader) == 16);

struct BlkRange {
  uint64_t sector = 0;
  uint32_t sectors = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(BlkRange) == 16);

}  // namespace ringside::testing
