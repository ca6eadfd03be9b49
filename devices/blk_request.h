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

// Whether `bytes` from this sector on can be transferred.
inline bool FitsDisk(const BlockInfo& info, uint64_t sector, uint64_t bytes) {
  const uint64_t within_block = info.logical_block - 1;
  const uint64_t size = info.size;
  return sector <= size / kSectorSize && bytes <= size - sector * kSectorSize &&
         ((sector * kSectorSize | bytes) & within_block) == 0;
}

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

inline constexpr uint32_t kBlkHeaderSize = 16, kBlkStatusSize = 1;

// The same of a read or write in three buffers: the header, the data and the status byte. Its only
// segment is the data. False: it is none, or is to be answered otherwise, which ParseBlkRequest
// sees to, and `request` is as it was.
inline bool ParseTransfer(const ThreeBuffers& buffers, const BlkView& disk, BlockRequest& request) {
  constexpr uint32_t kIn = 0, kOut = 1;  // section 5.2.6
  const bool reads = buffers.data_is_writable;
  const auto type = ReadOnce<uint32_t>(buffers.first);
  const auto sector = ReadOnce<uint64_t>(buffers.first + 8);
  if (type != (reads ? kIn : kOut) || (!reads && disk.info.read_only)) return false;
  if (!FitsDisk(disk.info, sector, buffers.data.length)) return false;
  request.op = reads ? BlockOp::kRead : BlockOp::kWrite;
  request.offset = sector * kSectorSize;
  return true;
}

}  // namespace ringside
