// Numbers inside an option, and lists of them where commas are taken: "0-2+5".
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

// Nothing if `text` as a whole is not a number.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Up to kMostListed numbers, each up to 65535, in the order given. Nothing if it is not such a
// list.
std::optional<std::vector<int>> ParseNumberList(std::string_view text);

// More than the CPUs of any host; ranges are short to write and long to hold.
inline constexpr size_t kMostListed = 8192;

}  // namespace ringside
