#include "base/crc32c.h"

#include <array>
#include <cstring>
#include <nmmintrin.h>

namespace ringside {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}();

__attribute__((target("sse4.2"))) uint32_t ByInstruction(std::span<const std::byte> bytes,
                                                         uint32_t before) {
  uint64_t crc = ~before;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    crc = _mm_crc32_u64(crc, word);
    bytes = bytes.subspan(sizeof word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (const std::byte each : bytes) rest = _mm_crc32_u8(rest, std::to_integer<uint8_t>(each));
  return ~rest;
}

}  // namespace

uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (const std::byte each : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<uint8_t>(each)) & 0xff];
  }
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  return has_instruction ? ByInstruction(bytes, before) : Crc32cByTable(bytes, before);
}

}  // namespace ringside
