// The file of an incremental backup, version 1 (docs/images.md): what has changed on a disk from
// one point to the next. All is little-endian.
//
//   0      header
//   4096   table; the data of its runs; table; ...
//
// A table has up to 126 runs, and the data of each run of data follows it in their order, each
// beginning at a multiple of 4096: so that file systems can share it with the overlay. Runs ascend,
// over all tables. The last table says that it is the last; behind its data the file ends.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "overlay/overlay_format.h"

namespace ringside {

struct DeltaHeader {
  static constexpr std::array<char, 8> kMagic = {'R', 'S', 'D', 'E', 'L', 'T', 'A', '\n'};
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kFull = 1;  // flags: it has all of the disk, so nothing comes before it

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t bytes = 4096;      // of this header
  uint64_t incompatible = 0;  // features: an unknown bit of these refuses the file
  uint64_t compatible = 0;
  uint64_t flags = 0;
  uint64_t disk_bytes = 0;  // a multiple of 512
  OverlayId overlay = {};   // that it was made of
  OverlayId point = {};     // that the disk is at with it
  OverlayId parent = {};    // that it has to be at before; zero: as the base is, or it is full
  BaseIdentity base = {};   // without a parent, and if it is not full: that base
  std::array<uint8_t, 3908> reserved = {};
  uint32_t crc = 0;  // CRC-32C of all before
};
static_assert(sizeof(DeltaHeader) == 4096);
static_assert(offsetof(DeltaHeader, crc) == 4092);

struct DeltaRun {
  enum class Kind : uint32_t { kData = 1, kZeroes = 2 };

  uint64_t offset = 0;  // on the disk, a multiple of 4096
  uint64_t length = 0;  // a multiple of 4096, or up to the disk's end; of data, 1 MiB at most
  Kind kind = Kind::kData;
  uint32_t crc = 0;  // CRC-32C of the data
  uint64_t reserved = 0;
};
static_assert(sizeof(DeltaRun) == 32);

struct DeltaTable {
  static constexpr std::array<char, 8> kMagic = {'R', 'S', 'D', 'T', 'A', 'B', 'L', 'E'};
  static constexpr size_t kRuns = 126;
  static constexpr uint64_t kMostData = uint64_t{1} << 20;  // bytes of a run

  std::array<char, 8> magic = kMagic;
  uint32_t crc = 0;      // CRC-32C of the table with a zero here
  uint32_t is_last = 0;  // or 1
  uint64_t number = 0;   // from 0 on
  OverlayId point = {};  // the header's
  uint64_t runs = 0;     // those of them that count
  std::array<uint8_t, 16> reserved = {};
  std::array<DeltaRun, kRuns> run = {};
};
static_assert(sizeof(DeltaTable) == 4096);
static_assert(offsetof(DeltaTable, run) == 64);

constexpr uint64_t DeltaPadded(uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace ringside
