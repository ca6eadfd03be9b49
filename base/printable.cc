#include "base/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace ringside {
namespace {

struct Character {
  char32_t code = 0;
  size_t length = 0;  // in bytes; 0: this is no character
};

// RFC 3629, section 3: shortest forms only, and neither surrogates nor what is above U+10FFFF.
Character FirstOf(std::string_view text) {
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by length
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  char32_t code = lead & (0x7fU >> length);
  for (const char c : text.substr(1, length - 1)) {
    const auto byte = static_cast<uint8_t>(c);
    if ((byte & 0xc0) != 0x80) return {};
    code = code << 6 | (byte & 0x3fU);
  }
  if (code < kLeast[length] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {};
  return {code, length};
}

bool IsPrintable(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  // The controls of ISO 6429; marks of direction, separators of lines, embeddings and isolates
  // (Unicode Standard Annex 9, table 4).
  constexpr Range kNot[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c},
                            {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
  return std::ranges::none_of(
      kNot, [&](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character first = FirstOf(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(first.length, 1));
    if (first.length > 0 && IsPrintable(first.code)) {
      shown += bytes;
    } else {
      for (const char c : bytes) absl::StrAppendFormat(&shown, "\\x%02x", static_cast<uint8_t>(c));
    }
    text.remove_prefix(bytes.size());
  }
  return shown;
}

}  // namespace ringside
