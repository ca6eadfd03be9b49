// The file of a record of writes and flushes, version 1 (docs/faults.md): a header, then entries in
// the order in which things happened, each write's followed by its data. All is little-endian.
//
// An entry stands before what it tells of can have an effect: a submission before the request goes
// to the disk, a completion before the guest sees it. So if the completion of a write stands before
// the submission of a flush, that flush covers it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ringside {

static_assert(std::endian::native == std::endian::little);

struct RecordHeader {
  static constexpr std::array<char, 8> kMagic = {'R', 'S', 'W', 'R', 'I', 'T', 'E', 'S'};
  static constexpr uint32_t kVersion = 1;

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t bytes = 64;           // of this header
  uint64_t disk_bytes = 0;       // the disk's size
  uint32_t logical_block = 512;  // what the disk does not tear
  std::array<uint8_t, 36> reserved = {};
};
static_assert(sizeof(RecordHeader) == 64);

struct RecordEntry {
  static constexpr uint32_t kMagic = 0x59525452;  // "RTRY"
  enum class Kind : uint8_t { kSubmitted = 1, kCompleted = 2, kEnd = 3 };
  static constexpr uint16_t kDurable = 1;  // flags: to be durable when it is completed
  static constexpr uint16_t kUnmap = 2;    // zeroes may be made by giving space back

  uint32_t magic = kMagic;
  Kind kind = Kind::kSubmitted;
  uint8_t op = 0;       // BlockOp: 1 write, 2 flush, 3 discard, 4 zeroes
  uint16_t flags = 0;   // of a submission
  uint64_t number = 0;  // the request's, from 1 on
  uint64_t offset = 0;  // on the disk
  uint64_t length = 0;  // bytes of the disk; of a write's submission, so many bytes follow
  int64_t time_ns = 0;  // since the disk was opened
  int32_t result = 0;   // of a completion: 0 or -errno
  uint32_t reserved = 0;
};
static_assert(sizeof(RecordEntry) == 48);

}  // namespace ringside
