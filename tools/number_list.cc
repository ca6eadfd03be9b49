#include "tools/number_list.h"

#include <charconv>
#include <cstdint>

namespace ringside {
namespace {

std::optional<int> ParseNumber(std::string_view text) {
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional<int>(number) : std::nullopt;
}

}  // namespace

std::optional<std::vector<int>> ParseNumberList(std::string_view text) {
  std::vector<int> numbers;
  for (bool more = true; more;) {
    const size_t plus = text.find('+');
    const std::string_view range = text.substr(0, plus);
    more = plus != std::string_view::npos;
    if (more) text.remove_prefix(plus + 1);
    const size_t dash = range.find('-');
    const std::optional<int> first = ParseNumber(range.substr(0, dash));
    const std::optional<int> last =
        dash != std::string_view::npos ? ParseNumber(range.substr(dash + 1)) : first;
    if (!first || !last || *first > *last) return std::nullopt;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace ringside
