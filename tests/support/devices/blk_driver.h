// The guest's side of a virtio-blk queue: requests with buffers of their own, found by head.
// Allocates nothing once made.
//
// Threads: one at a time; the other side is the device.
// Units: sectors of 512 bytes, bytes.
// Source: VIRTIO 1.2, section 5.2.6.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/fake_driver.h"

namespace ringside::testing {

class BlkDriver {
 public:
  struct Options {
    FakeDriver::Options queue;
    uint32_t max_bytes = 16384;  // of one request
    uint32_t segment = 4096;     // the most in one buffer
  };
  static constexpr uint8_t kNoStatus = 0xee;  // until the device says

  BlkDriver(const GuestMemory& memory, const Options& options)
      : options_(options), memory_(memory), queue_(memory, options.queue) {}

  FakeDriver& queue() { return queue_; }
  // First address behind all it uses.
  uint64_t end() const { return queue_.end() + SlotBytes() * options_.queue.size; }

  // Makes a request available and returns its head; Publish is the caller's. `out` is copied.
  uint16_t Add(uint32_t type, uint64_t sector, std::span<const std::byte> out, uint32_t in_bytes) {
    const uint64_t slot = Slot(queue_.next_head());
    const BlkHeader header = {.type = type, .sector = sector};
    std::memcpy(Host(slot), &header, sizeof header);
    Host(slot)[kStatus] = std::byte{kNoStatus};
    if (!out.empty()) std::memcpy(Host(slot + kData), out.data(), out.size());
    FakeDriver::Chain chain = queue_.NewChain();
    chain.AppendReadable(slot, sizeof header);
    ForEachSegment(static_cast<uint32_t>(out.size()), [&](uint32_t offset, uint32_t length) {
      chain.AppendReadable(slot + kData + offset, length);
    });
    ForEachSegment(in_bytes, [&](uint32_t offset, uint32_t length) {
      chain.AppendWritable(slot + kData + offset, length);
    });
    chain.AppendWritable(slot + kStatus, 1);
    return chain.Add();
  }
  uint16_t AddRead(uint64_t sector, uint32_t bytes) { return Add(kBlkIn, sector, {}, bytes); }
  uint16_t AddWrite(uint64_t sector, std::span<const std::byte> data) {
    return Add(kBlkOut, sector, data, 0);
  }
  uint16_t AddFlush() { return Add(kBlkFlush, 0, {}, 0); }
  uint16_t AddRange(uint32_t type, const BlkRange& range) {
    return Add(type, 0, std::as_bytes(std::span(&range, 1)), 0);
  }

  // Of a request whose chain has come back.
  uint8_t status(uint32_t head) { return std::to_integer<uint8_t>(Host(Slot(head))[kStatus]); }
  std::span<const std::byte> data(uint32_t head, size_t bytes) {
    return {Host(Slot(head) + kData), bytes};
  }

 private:
  static constexpr uint64_t kStatus = 16;
  static constexpr uint64_t kData = 512;

  uint64_t SlotBytes() const { return kData + options_.max_bytes; }
  uint64_t Slot(uint32_t head) const { return queue_.end() + SlotBytes() * head; }
  std::byte* Host(uint64_t address) { return memory_.At(address, 1); }
  template <typename Function>
  void ForEachSegment(uint32_t bytes, Function function) {
    for (uint32_t done = 0; done < bytes;) {
      const uint32_t length = std::min(options_.segment, bytes - done);
      function(done, length);
      done += length;
    }
  }

  const Options options_;
  const GuestMemory& memory_;
  FakeDriver queue_;
};

}  // namespace ringside::testing
