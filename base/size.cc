#include "base/size.h"

#include <charconv>

#include "base/status.h"

namespace ringside {
namespace {
constexpr std::string_view kSuffixes = "KMGT";
}

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  const auto bad = [text] {
    return BadInput("'%s' is not a size; write a whole number of bytes, or with K, M, G or T",
                    text);
  };
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto too_big = [text] { return BadInput("'%s' is more than 64 bits can hold", text); };
  if (error == std::errc::result_out_of_range) return too_big();
  if (error != std::errc()) return bad();
  const std::string_view suffix = text.substr(static_cast<size_t>(rest - text.data()));
  if (suffix.empty()) return number;
  const char letter = suffix[0] >= 'a' ? static_cast<char>(suffix[0] - 'a' + 'A') : suffix[0];
  const size_t power = kSuffixes.find(letter);
  if (suffix.size() != 1 || power == std::string_view::npos) return bad();
  const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  if (number > UINT64_MAX >> shift) return too_big();
  return number << shift;
}

std::string FormatSize(uint64_t bytes) {
  for (size_t power = kSuffixes.size(); power > 0; --power) {
    const uint64_t unit = uint64_t{1} << (10 * power);
    if (bytes >= unit && bytes % unit == 0) {
      return absl::StrFormat("%d%c", bytes / unit, kSuffixes[power - 1]);
    }
  }
  constexpr uint64_t kMebi = 1 << 20;
  if (bytes < kMebi) return absl::StrFormat("%d", bytes);
  return absl::StrFormat("%dM", bytes / kMebi + (bytes % kMebi != 0 ? 1 : 0));
}

}  // namespace ringside
