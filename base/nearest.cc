#include "base/nearest.h"

#include <algorithm>
#include <numeric>

namespace ringside {
namespace {

// Levenshtein distance, one row at a time.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (letter != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto nearest = std::ranges::min_element(
      candidates, {}, [word](const std::string& candidate) { return Edits(word, candidate); });
  return nearest == candidates.end() ? "" : *nearest;
}

std::string NearestLike(std::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest = Nearest(word, candidates);
  return Edits(word, nearest) <= std::max(size_t{2}, word.size() / 3) ? nearest : "";
}

}  // namespace ringside
