// Values of the command line's words: numbers with units, choices, lists. Also used by programs of
// the host that take the same words.

#ifndef RINGSIDE_TESTS_GUEST_WORD_READER_H_
#define RINGSIDE_TESTS_GUEST_WORD_READER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "command_line.h"
#include "console.h"

namespace guest {

constexpr uint64_t kNsPerUs = 1000;
constexpr uint64_t kNsPerMs = 1'000'000;

struct Unit {
  std::string_view name;
  uint64_t factor;
};
inline constexpr std::array kSizeUnits = {Unit{"", 1}, Unit{"k", 1 << 10}, Unit{"M", 1 << 20},
                                          Unit{"G", 1 << 30}};
inline constexpr std::array kTimeUnits = {Unit{"us", kNsPerUs}, Unit{"ms", kNsPerMs},
                                          Unit{"s", 1000 * kNsPerMs}};
inline constexpr std::array kNoUnit = {Unit{"", 1}};

// Reads words, and remembers whether all could be used.
class WordReader {
 public:
  explicit WordReader(const CommandLine& words) : words_(words) {}

  // A number with a unit, from `least` to `most`.
  uint64_t Number(std::string_view key, std::string_view otherwise, std::span<const Unit> units,
                  uint64_t least, uint64_t most) {
    return Parse(key, words_.Get(key, otherwise), units, least, most);
  }

  uint64_t Parse(std::string_view key, std::string_view text, std::span<const Unit> units,
                 uint64_t least, uint64_t most) {
    uint64_t number = 0;
    std::string_view unit = text;
    while (!unit.empty() && unit[0] >= '0' && unit[0] <= '9' && number < most) {
      number = number * 10 + static_cast<uint64_t>(unit[0] - '0');
      unit.remove_prefix(1);
    }
    for (const Unit& known : units) {
      if (unit != known.name || unit.size() == text.size()) continue;
      number *= known.factor;
      if (number >= least && number <= most) return number;
    }
    Refuse(key, text);
    return least;
  }

  // The index of the word's value among `choices`.
  size_t Choice(std::string_view key, std::span<const std::string_view> choices) {
    const std::string_view text = words_.Get(key, choices[0]);
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == text) return i;
    }
    Refuse(key, text);
    return 0;
  }

  void Refuse(std::string_view key, std::string_view text) {
    Say("FAIL ", key, ": expected a value that the guest knows got \"", text, "\"");
    ok_ = false;
  }
  bool ok() const { return ok_; }

 private:
  const CommandLine& words_;
  bool ok_ = true;
};

// The next item of a list with commas, taken off its front.
inline std::string_view PopItem(std::string_view& list) {
  const size_t comma = std::min(list.find(','), list.size());
  const std::string_view item(list.data(), comma);
  list.remove_prefix(std::min(comma + 1, list.size()));
  return item;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_WORD_READER_H_
