#include "base/number_list.h"

#include <cstdint>

namespace ringside {

std::optional<std::vector<int>> ParseNumberList(std::string_view text) {
  std::vector<int> numbers;
  for (bool more = true; more;) {
    const size_t plus = text.find('+');
    const std::string_view range = text.substr(0, plus);
    more = plus != std::string_view::npos;
    if (more) text.remove_prefix(plus + 1);
    const size_t dash = range.find('-');
    const auto first = ParseNumber<uint16_t>(range.substr(0, dash));
    const auto last =
        dash != std::string_view::npos ? ParseNumber<uint16_t>(range.substr(dash + 1)) : first;
    if (!first || !last || *first > *last) return std::nullopt;
    if (numbers.size() + (*last - *first) >= kMostListed) return std::nullopt;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace ringside
