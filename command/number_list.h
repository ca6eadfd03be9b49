// Numbers inside an option, and lists of them, where commas are taken: "0-2+5".
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace ringside {

// Nothing if `text` as a whole is none.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Numbers up to 65535, in the order given. Nothing if it is no such list.
std::optional<std::vector<int>> ParseNumberList(std::string_view text);

}  // namespace ringside
