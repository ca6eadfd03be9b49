// See command_line.h.

#include "command_line.h"

#include <algorithm>

namespace guest {

std::string_view CommandLine::Get(std::string_view key, std::string_view otherwise) const {
  const std::string_view first = GetNth(key, 0);
  return first.data() == nullptr ? otherwise : first;
}

std::string_view CommandLine::GetNth(std::string_view key, size_t n) const {
  // substr and at() are avoided: they may throw, and there is nobody to catch.
  std::string_view rest = text_;
  while (!rest.empty()) {
    const size_t blank = std::min(rest.find(' '), rest.size());
    std::string_view word(rest.data(), blank);
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=' && n-- == 0) {
      word.remove_prefix(key.size() + 1);
      return word;
    }
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  return {};
}

uint64_t CommandLine::GetNumber(std::string_view key, uint64_t otherwise) const {
  const std::string_view digits = Get(key);
  if (digits.empty()) return otherwise;
  uint64_t number = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return otherwise;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}

}  // namespace guest
