// What a virtio-blk request asks for: from the buffers of a chain to a BlockRequest, or to the
// answer right away. No state, no I/O.
//
// Spec: VIRTIO 1.2, section 5.2.6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "block/block_device.h"
#include "devices/virtqueue.h"

namespace ringside {

inline constexpr uint64_t kSectorSize = 512;
inline constexpr size_t kBlkIdSize = 20;
// The most of one discard or write-zeroes request, and the most ranges in it.
inline constexpr uint32_t kMaxDiscardSectors = 1 << 22;  // 2 GiB
inline constexpr uint32_t kMaxDiscardRanges = 1;

enum class BlkStatus : uint8_t { kOk = 0, kIoError = 1, kUnsupported = 2 };

// The disk as the driver negotiated it.
struct BlkView {
  BlockInfo info;
  bool discard = false;  // VIRTIO_BLK_F_DISCARD and _WRITE_ZEROES were negotiated
  bool write_zeroes = false;
  std::array<char, kBlkIdSize> id{};
};

struct BlkParse {
  enum class Kind {
    kSubmit,    // `request` and `data` are filled
    kComplete,  // `status` is the answer
    kBroken,    // no place for an answer
  };
  Kind kind = Kind::kBroken;
  BlkStatus status = BlkStatus::kIoError;
  std::byte* status_byte = nullptr;  // in guest memory
  uint32_t written = 0;              // bytes of the chain written, the status byte included
  std::span<Segment> data;           // what is to be transferred: a part of `buffers`
  uint64_t bytes = 0;                // the length of `data`
};

// Fills `request` but for its segments. `buffers` is used up: `data` is what is left of it.
BlkParse ParseBlkRequest(ChainBuffers& buffers, const BlkView& disk, BlockRequest& request);

}  // namespace ringside
