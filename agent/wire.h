// Little-endian numbers and bytes, out of a payload and into one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ringside {

// Whoever reads beyond the end gets zeroes, and is told at the end: is_exact().
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  uint16_t U16() { return static_cast<uint16_t>(Number(2)); }
  uint32_t U32() { return static_cast<uint32_t>(Number(4)); }
  uint64_t U64() { return Number(8); }
  std::string_view Bytes(size_t count) {
    if (count > bytes_.size()) {
      is_short_ = true;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view Rest() { return Bytes(bytes_.size()); }
  // Up to a NUL, which is taken too.
  std::string_view Text() {
    const size_t end = bytes_.find('\0');
    if (end == std::string_view::npos) {
      is_short_ = true;
      return {};
    }
    const std::string_view text = Bytes(end);
    bytes_.remove_prefix(1);
    return text;
  }

  bool is_short() const { return is_short_; }
  bool is_exact() const { return !is_short_ && bytes_.empty(); }

 private:
  uint64_t Number(size_t size) {
    const std::string_view bytes = Bytes(size);
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    return number;
  }

  std::string_view bytes_;
  bool is_short_ = false;
};

// Appends to what is there.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  WireWriter& U16(uint16_t number) { return Number(number, 2); }
  WireWriter& U32(uint32_t number) { return Number(number, 4); }
  WireWriter& U64(uint64_t number) { return Number(number, 8); }
  WireWriter& Bytes(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  WireWriter& Text(std::string_view text) {
    out_.append(text);
    out_.push_back('\0');
    return *this;
  }

 private:
  WireWriter& Number(uint64_t number, size_t size) {
    for (size_t i = 0; i < size; ++i) out_.push_back(static_cast<char>(number >> (8 * i)));
    return *this;
  }

  std::string& out_;
};

}  // namespace ringside
