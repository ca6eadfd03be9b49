// From the bytes of a fuzzer to the requests of a virtio-blk driver, in guest memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/virtio_blk_model.h"

namespace ringside::testing {

// Zeroes when it is used up, which are ordinary choices everywhere.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // Short inputs stay valid.
  bool Rarely() { return Byte() == 0xff; }
  template <typename T>
  T Value() {
    T value = 0;
    for (size_t i = 0; i < sizeof value; ++i) value = static_cast<T>(value << 8 | Byte());
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Writes requests into guest memory.
class Writer {
 public:
  Writer(Input& input, const GuestMemory& memory) : input_(input), memory_(memory) {}

  void Restart() { next_ = kData; }
  bool HasRoom() const { return next_ + 40 * 1024 < kMemorySize; }

  Request Write() {
    static constexpr uint32_t kTypes[] = {kBlkIn,      kBlkOut,         kBlkFlush, kBlkGetId,
                                          kBlkDiscard, kBlkWriteZeroes, kBlkIn,    kBlkOut};
    Request request;
    request.type = kTypes[input_.Byte() % 8];
    if (input_.Rarely()) request.type = input_.Value<uint32_t>();
    request.sector = input_.Byte() % kSectors;
    if (input_.Rarely()) request.sector = input_.Value<uint64_t>();
    WriteHeader(request);
    WriteData(request);
    WriteStatus(request);
    return request;
  }

 private:
  // What data is made of, from any of its first 256 bytes on.
  static const Bytes& Noise() {
    static const Bytes noise = [] {
      Bytes bytes(256 + 8192);
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256);
      return bytes;
    }();
    return noise;
  }
  std::byte* Host(uint64_t address) { return memory_.At(address, 1); }
  Request::Buffer Reserve(uint32_t length) {
    const uint64_t address = next_;
    next_ += length + 1 + input_.Byte() % 16;  // a gap, which must stay as it is
    return {address, length};
  }
  // `bytes` as buffers to read, in one or, rarely, more.
  void WriteReadable(Request& request, const void* bytes, uint32_t length) {
    const auto* from = static_cast<const std::byte*>(bytes);
    while (length > 0) {
      const uint32_t part = input_.Rarely() ? 1 + input_.Byte() % length : length;
      const Request::Buffer buffer = Reserve(part);
      std::memcpy(Host(buffer.address), from, part);
      request.readable.push_back(buffer);
      from += part;
      length -= part;
    }
  }
  void WriteHeader(Request& request) {
    const BlkHeader header = {.type = request.type, .sector = request.sector};
    WriteReadable(request, &header, sizeof header);
  }
  void WriteData(Request& request) {
    if (request.type == kBlkDiscard || request.type == kBlkWriteZeroes) return WriteRange(request);
    const bool out = request.type == kBlkOut;
    // More than the device keeps room for inside a request, rarely.
    for (int n = input_.Rarely() ? 9 + input_.Byte() % 12 : input_.Byte() % 5; n > 0; --n) {
      if (next_ + 9 * 1024 > kMemorySize) break;
      uint32_t length = 512 * (1 + input_.Byte() % 16u);
      if (input_.Rarely()) length = 1 + input_.Value<uint16_t>() % 8192u;
      const Request::Buffer buffer = Reserve(length);
      std::memcpy(Host(buffer.address), &Noise()[input_.Byte()], length);
      (out ? request.readable : request.writable).push_back(buffer);
    }
  }
  void WriteRange(Request& request) {
    request.range = {.sector = request.sector, .sectors = input_.Byte() % 64u};
    request.range.flags = input_.Byte() % 2;
    if (input_.Rarely()) request.range.sectors = input_.Value<uint32_t>();
    if (input_.Rarely()) request.range.flags = input_.Value<uint32_t>();
    uint32_t length = sizeof request.range;
    if (input_.Rarely()) length = input_.Byte() % 48;
    std::array<std::byte, 48> bytes{};
    std::memcpy(bytes.data(), &request.range, sizeof request.range);
    WriteReadable(request, bytes.data(), length);
  }
  void WriteStatus(Request& request) {
    if (input_.Rarely() && !request.writable.empty()) {
      ++request.writable.back().length;  // into the gap
    } else {
      request.writable.push_back(Reserve(1));
    }
    *Host(request.status_address()) = std::byte{0xee};
  }

  Input& input_;
  const GuestMemory& memory_;
  uint64_t next_ = kData;
};

}  // namespace ringside::testing
