#include "snapshot/state_file.h"

#include <array>
#include <cctype>
#include <cstring>

#include "base/crc32c.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr uint32_t kStateFormat = 1;

struct FileHeader {
  std::array<char, 8> magic;
  uint32_t format;
  uint32_t sections;
  uint32_t crc;
};
static_assert(sizeof(FileHeader) == 20);

struct SectionHeader {
  uint32_t tag;
  uint32_t version;
  uint32_t length;
  uint32_t crc;
};
static_assert(sizeof(SectionHeader) == 16);

uint32_t CrcOf(const FileHeader& header) {
  return Crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, crc)));
}

uint32_t CrcOf(const SectionHeader& header, std::span<const uint8_t> payload, uint32_t before) {
  const auto bytes = std::as_bytes(std::span(&header, 1)).first(offsetof(SectionHeader, crc));
  return Crc32c(std::as_bytes(payload), Crc32c(bytes, before));
}

template <typename Header>
void Append(const Header& header, std::vector<uint8_t>& bytes) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&header);
  bytes.insert(bytes.end(), begin, begin + sizeof header);
}

absl::Status Damaged(size_t at, std::string_view what) {
  return BadInput("the state is damaged: at byte %d %s", at, what);
}

}  // namespace

std::string StateTagName(uint32_t tag) {
  std::string name;
  for (int i = 0; i < 4; ++i, tag >>= 8) {
    const auto letter = static_cast<unsigned char>(tag & 0xff);
    name += std::isprint(letter) != 0 ? static_cast<char>(letter) : '?';
  }
  return name;
}

void StateFileWriter::Add(uint32_t tag, uint32_t version, std::span<const uint8_t> payload) {
  // Its CRC comes with the header's, which the chain begins with.
  Append(SectionHeader{.tag = tag,
                       .version = version,
                       .length = static_cast<uint32_t>(payload.size()),
                       .crc = 0},
         sections_);
  sections_.insert(sections_.end(), payload.begin(), payload.end());
  ++count_;
}

std::vector<uint8_t> StateFileWriter::Finish() && {
  FileHeader file = {.magic = kStateMagic, .format = kStateFormat, .sections = count_, .crc = 0};
  file.crc = CrcOf(file);
  uint32_t crc = file.crc;
  for (size_t at = 0; at < sections_.size();) {
    SectionHeader header;
    std::memcpy(&header, &sections_[at], sizeof header);
    const auto payload = std::span(sections_).subspan(at + sizeof header, header.length);
    header.crc = crc = CrcOf(header, payload, crc);
    std::memcpy(&sections_[at], &header, sizeof header);
    at += sizeof header + payload.size();
  }
  std::vector<uint8_t> bytes;
  bytes.reserve(sizeof file + sections_.size());
  Append(file, bytes);
  bytes.insert(bytes.end(), sections_.begin(), sections_.end());
  return bytes;
}

absl::StatusOr<std::vector<StateSection>> ReadStateFile(std::span<const uint8_t> bytes) {
  FileHeader file;
  if (bytes.size() < sizeof file ||
      std::memcmp(bytes.data(), kStateMagic.data(), kStateMagic.size()) != 0) {
    return BadInput("this is no saved state of a Ringside machine");
  }
  std::memcpy(&file, bytes.data(), sizeof file);
  if (file.crc != CrcOf(file)) return Damaged(0, "the header's checksum is wrong");
  if (file.format != kStateFormat) {
    return BadInput(
        "the state has format %d, and this Ringside reads format %d: use the one that "
        "saved it, or a newer one",
        file.format, kStateFormat);
  }
  std::vector<StateSection> sections;
  uint32_t crc = file.crc;
  size_t at = sizeof file;
  for (uint32_t i = 0; i < file.sections; ++i) {
    SectionHeader header;
    const auto rest = bytes.subspan(at);
    if (rest.size() < sizeof header) return Damaged(at, "it ends within a section");
    std::memcpy(&header, rest.data(), sizeof header);
    if (header.length > rest.size() - sizeof header) {
      return Damaged(at, "a section is longer than the file");
    }
    const auto payload = rest.subspan(sizeof header, header.length);
    crc = CrcOf(header, payload, crc);
    if (header.crc != crc) return Damaged(at, "the checksum of a section is wrong");
    sections.push_back({header.tag, header.version, payload});
    at += sizeof header + payload.size();
  }
  if (at != bytes.size()) return Damaged(at, "there is more than its sections");
  return sections;
}

}  // namespace ringside
