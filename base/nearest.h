// "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringside {

// The candidate with the fewest edits from `word`; the first of equals. Empty if there is none.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);
// The same where at most two edits are needed, or a third as many as the word has letters. Empty:
// none is like it.
std::string NearestLike(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ringside
