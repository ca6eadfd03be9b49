// The file of an overlay, version 1 (docs/overlays.md): two slots of a header, two slots for each
// page of the block map, and the data. All is little-endian.
//
//   0            header, slots 0 and 1
//   8192         page 0 of the map, slots 0 and 1; page 1; ...
//   data_offset  the disk: the guest's byte x is at data_offset + x
//
// A slot is written whole, and never the one that counts: what a power cut tears is recognised by
// its checksum, and the other slot counts.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ringside {

static_assert(std::endian::native == std::endian::little);

// What is copied from the base and allocated as one.
inline constexpr uint64_t kOverlayBlock = 4096;
inline constexpr uint64_t kOverlaySlotBytes = 4096;
inline constexpr uint64_t kOverlayMapOffset = 2 * kOverlaySlotBytes;
inline constexpr uint64_t kOverlayDataAlignment = uint64_t{1} << 20;

inline constexpr uint64_t kBlocksPerMapPage = 8192;
inline constexpr uint64_t kBytesPerMapPage = kBlocksPerMapPage * kOverlayBlock;  // of the disk
inline constexpr uint64_t kIntentRegions = 64;                                   // of a page
inline constexpr uint64_t kBlocksPerIntent = kBlocksPerMapPage / kIntentRegions;

// The largest disk. Its map takes 64 GiB of a sparse file and as much of address space.
inline constexpr uint64_t kMostOverlayBytes = uint64_t{1} << 48;
// A new overlay has room to grow to twice its size, and to this at least.
inline constexpr uint64_t kLeastOverlayCapacity = uint64_t{64} << 30;

using OverlayId = std::array<uint8_t, 16>;      // random; all zero: none
using OverlayDigest = std::array<uint8_t, 32>;  // SHA-256

enum class BaseKind : uint32_t {
  kNone = 0,  // reads as zeroes
  kRaw = 1,   // any other backend, most often a raw file
  kOverlay = 2,
};

// What an overlay stands on, so that another in its place is noticed.
struct BaseIdentity {
  BaseKind kind = BaseKind::kNone;
  uint32_t has_digest = 0;    // 1: `digest` is that of the whole base
  uint64_t size = 0;          // bytes
  int64_t modified_ns = 0;    // of a raw file, its mtime; 0: unknown, as of a block device
  OverlayId id = {};          // of an overlay
  OverlayId generation = {};  // and as which it was last open for writing
  OverlayDigest digest = {};
};
static_assert(sizeof(BaseIdentity) == 88);

struct OverlayHeader {
  static constexpr std::array<char, 8> kMagic = {'R', 'S', 'O', 'V', 'L', 'A', 'Y', '\n'};
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kHintBytes = 1024;

  // Flags.
  // Somebody has it open for writing, or had and was killed. If it is not set, no slot is torn.
  static constexpr uint64_t kInUse = 1;
  // Its map was found to be wrong: it is opened to be read only.
  static constexpr uint64_t kCorrupt = 2;
  // Its blocks are being written into its base, which nobody else may use until that is finished.
  static constexpr uint64_t kCommitting = 4;
  // The backup that it has as its point is being written into it: nobody may use it until then.
  static constexpr uint64_t kApplying = 8;

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t bytes = kOverlaySlotBytes;  // of a slot of this header
  // Features. An unknown bit of the first: the file is not opened. Of the second: it does not
  // matter. Of the third: it is cleared by whoever opens the file for writing.
  uint64_t incompatible = 0;
  uint64_t compatible = 0;
  uint64_t autoclear = 0;
  uint64_t sequence = 0;  // of the two slots that are valid the higher one counts
  OverlayId id = {};
  OverlayId generation = {};  // anew whenever it is opened for writing
  uint64_t size = 0;          // of the disk, a multiple of 512
  uint64_t capacity = 0;      // of the map: bytes of disk, a multiple of kBytesPerMapPage
  uint64_t data_offset = 0;   // a multiple of kOverlayDataAlignment
  uint64_t flags = 0;
  uint32_t epoch = 0;    // pages of a lower one are void
  uint32_t period = 0;   // of backups: dirty bits of a lower one are void; 0: there was none yet
  OverlayId point = {};  // the backup since which dirty bits are set
  OverlayId previous_point = {};  // the one before that
  uint64_t base_bytes = 0;        // of the base that can be seen; beyond, the disk reads as zeroes
  BaseIdentity base = {};
  // Where the base was when it was last looked at. For people: it is never opened.
  std::array<char, kHintBytes> base_hint = {};  // ends with a zero
  std::array<uint8_t, 2820> reserved = {};
  uint32_t crc = 0;  // CRC-32C of all before
};
static_assert(sizeof(OverlayHeader) == kOverlaySlotBytes);
static_assert(offsetof(OverlayHeader, crc) == kOverlaySlotBytes - 4);

// Bits of a page's blocks, the first block's the lowest of the first word.
using MapPlane = std::array<uint64_t, kBlocksPerMapPage / 64>;

struct MapPage {
  static constexpr std::array<char, 4> kMagic = {'R', 'S', 'M', 'P'};

  std::array<char, 4> magic = kMagic;
  uint32_t crc = 0;       // CRC-32C of the page with a zero here
  uint64_t number = 0;    // the page's
  uint32_t epoch = 0;     // the header's
  uint32_t period = 0;    // the header's, when it was written
  uint64_t sequence = 0;  // of the two slots that are valid the higher one counts; from 1 on
  // Regions whose data may have been overwritten since the backup without its dirty bits.
  uint64_t intents = 0;
  std::array<uint8_t, 984> reserved = {};
  // A block's state is a bit of each of the first two: neither: the base is seen; `here`: its data
  // is in this file; `zeroes`: it reads as zeroes; both: no valid page has it.
  MapPlane here = {};
  MapPlane zeroes = {};
  MapPlane dirty = {};  // changed since the backup
};
static_assert(sizeof(MapPage) == kOverlaySlotBytes);
static_assert(offsetof(MapPage, here) == 1024);

constexpr uint64_t HeaderSlotOffset(unsigned slot) {
  return slot * kOverlaySlotBytes;
}
constexpr uint64_t PageSlotOffset(uint64_t page, unsigned slot) {
  return kOverlayMapOffset + (2 * page + slot) * kOverlaySlotBytes;
}
constexpr uint64_t OverlayBlocks(uint64_t bytes) {
  return (bytes + kOverlayBlock - 1) / kOverlayBlock;
}
// How long the file of a disk of this size is.
constexpr uint64_t OverlayFileBytes(uint64_t data_offset, uint64_t size) {
  return data_offset + OverlayBlocks(size) * kOverlayBlock;
}

}  // namespace ringside
