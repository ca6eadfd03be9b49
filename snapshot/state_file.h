// The file of a machine's state: sections, each with what it is, its version, its length and a
// checksum over all of that, behind a header with the number of them. Whatever was changed in it,
// a bit or its end, is found before anything of it is used.
//
//   header   "RSSTATE\0", u32 format, u32 sections, u32 CRC of these 16 bytes
//   section  u32 tag, u32 version, u32 length, u32 CRC of these 12 bytes and the payload, payload
//
// All numbers are little-endian. The CRC is CRC-32C (RFC 3720, section 12.1), each begun with the
// one before, so that sections cannot change places. A reader refuses
// a format, a tag or a version that it does not know, by name: what it cannot restore it must not
// leave out. Sections are told apart by their tags alone, of which there may be several.
//
// Threads: none. Ownership: sections refer to the bytes they were read from.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

// More than any machine's state has: 254 vCPUs with large registers, and its devices.
inline constexpr size_t kMostStateBytes = 64 << 20;

// How each begins.
inline constexpr std::array<char, 8> kStateMagic = {'R', 'S', 'S', 'T', 'A', 'T', 'E', '\0'};

constexpr uint32_t StateTag(const char (&letters)[5]) {
  uint32_t tag = 0;
  for (int i = 3; i >= 0; --i) tag = tag << 8 | static_cast<uint8_t>(letters[i]);
  return tag;
}

struct StateSection {
  uint32_t tag;
  uint32_t version;
  std::span<const uint8_t> payload;
};

class StateFileWriter {
 public:
  void Add(uint32_t tag, uint32_t version, std::span<const uint8_t> payload);
  // The whole file.
  std::vector<uint8_t> Finish() &&;

 private:
  std::vector<uint8_t> sections_;
  uint32_t count_ = 0;
};

// In their order in the file. InvalidArgument says what is wrong, and where.
absl::StatusOr<std::vector<StateSection>> ReadStateFile(std::span<const uint8_t> bytes);

// "VCPU", as far as it can be printed.
std::string StateTagName(uint32_t tag);

}  // namespace ringside
