// What a virtio-blk device owes its driver, written from the specification (VIRTIO 1.2, section
// 5.2.6) and by other means than the device's own: what virtio_blk_fuzz holds the device against.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "block/block_device.h"
#include "devices/guest_memory.h"
#include "tests/support/devices/blk_format.h"

namespace ringside::testing {

inline constexpr uint64_t kMemorySize = 256 * 1024;
inline constexpr uint64_t kData = 0x10000;  // rings and tables below, buffers above
inline constexpr uint64_t kSectors = 256;   // of the disk
inline constexpr char kSerial[] = "fuzz";

using Bytes = std::vector<std::byte>;

inline void Check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  __builtin_trap();
}

inline bool Same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// A request as it was written, in terms of the specification.
struct Request {
  struct Buffer {
    uint64_t address;
    uint32_t length;
  };
  uint32_t type = 0;
  uint64_t sector = 0;
  BlkRange range;
  std::vector<Buffer> readable, writable;  // the header first, the status byte last

  static uint64_t Total(const std::vector<Buffer>& buffers) {
    uint64_t total = 0;
    for (const Buffer& buffer : buffers) total += buffer.length;
    return total;
  }
  uint64_t out() const { return Total(readable) - sizeof(BlkHeader); }
  uint64_t in() const { return Total(writable) - 1; }
  uint64_t status_address() const { return writable.back().address + writable.back().length - 1; }
};

// What the device should make of requests: written from the specification, by its own means.
class Model {
 public:
  enum class Outcome { kOk, kIoError, kUnsupported, kSubmit };

  Model(const GuestMemory& memory, const BlockInfo& info)
      : info_(info), memory_(memory), disk_(info.size), shadow_(Look()) {}

  Outcome Judge(const Request& request) const {
    switch (request.type) {
      case kBlkIn:
        return JudgeTransfer(request.sector, request.in());
      case kBlkOut:
        if (info_.read_only) return Outcome::kIoError;
        return JudgeTransfer(request.sector, request.out());
      case kBlkFlush:
        return info_.read_only ? Outcome::kOk : Outcome::kSubmit;
      case kBlkGetId:
        return Outcome::kOk;
      case kBlkDiscard:
      case kBlkWriteZeroes:
        return JudgeRange(request);
      default:
        return Outcome::kUnsupported;
    }
  }
  uint32_t Written(const Request& request) const {
    if (request.type == kBlkIn) return static_cast<uint32_t>(request.in()) + 1;
    if (request.type == kBlkGetId) return std::min<uint32_t>(20, request.in()) + 1;
    return 1;
  }

  // The effect of an answer on memory and disk.
  void Apply(const Request& request, uint8_t status) {
    if (status == kBlkOk) {
      if (request.type == kBlkIn) Scatter(request, &disk_[OffsetOf(request)], request.in());
      if (request.type == kBlkOut) Gather(request);
      if (request.type == kBlkGetId) ScatterId(request);
      if (request.type == kBlkDiscard || request.type == kBlkWriteZeroes) {
        std::fill_n(disk_.begin() + static_cast<ptrdiff_t>(request.range.sector * 512),
                    request.range.sectors * 512, std::byte{0});
      }
    }
    At(request.status_address()) = static_cast<std::byte>(status);
  }
  // After the driver wrote its buffers.
  void LookAgain() { shadow_ = Look(); }
  void CheckMemory() const {
    Check(Same(shadow_, Look()), "buffers hold what they should, and nothing between them changed");
  }
  const Bytes& disk() const { return disk_; }

 private:
  Bytes Look() const {
    const std::byte* host = memory_.At(kData, kMemorySize - kData);
    return {host, host + kMemorySize - kData};
  }
  std::byte& At(uint64_t address) { return shadow_.at(address - kData); }
  bool Inside(uint64_t sector, uint64_t bytes) const {
    const uint64_t per_block = info_.logical_block / 512;
    return bytes % info_.logical_block == 0 && sector % per_block == 0 && sector <= kSectors &&
           bytes / 512 <= kSectors - sector;
  }
  Outcome JudgeTransfer(uint64_t sector, uint64_t bytes) const {
    if (!Inside(sector, bytes)) return Outcome::kIoError;
    return bytes == 0 ? Outcome::kOk : Outcome::kSubmit;
  }
  Outcome JudgeRange(const Request& request) const {
    const BlkRange& range = request.range;
    if (!info_.can_discard || info_.read_only) return Outcome::kUnsupported;
    if (request.out() != sizeof range) return Outcome::kIoError;
    const uint32_t allowed = request.type == kBlkWriteZeroes ? 1 : 0;
    if ((range.flags | allowed) != allowed) return Outcome::kUnsupported;
    return JudgeTransfer(range.sector, uint64_t{range.sectors} * 512);
  }
  static size_t OffsetOf(const Request& request) { return request.sector * 512; }
  void Scatter(const Request& request, const std::byte* from, size_t bytes) {
    for (const Request::Buffer& buffer : request.writable) {
      const size_t part = std::min<size_t>(buffer.length, bytes);
      if (part > 0) std::memcpy(&At(buffer.address), from, part);
      from += part;
      bytes -= part;
    }
  }
  void ScatterId(const Request& request) {
    std::array<std::byte, 20> id{};
    std::memcpy(id.data(), kSerial, sizeof kSerial - 1);
    Scatter(request, id.data(), std::min<uint64_t>(request.in(), id.size()));
  }
  void Gather(const Request& request) {
    size_t skip = sizeof(BlkHeader);
    size_t to = OffsetOf(request);
    for (const Request::Buffer& buffer : request.readable) {
      const size_t header = std::min<size_t>(buffer.length, skip);
      skip -= header;
      if (buffer.length == header) continue;
      std::memcpy(&disk_.at(to), &At(buffer.address + header), buffer.length - header);
      to += buffer.length - header;
    }
  }

  const BlockInfo info_;
  const GuestMemory& memory_;
  Bytes disk_;
  Bytes shadow_;
};

}  // namespace ringside::testing
