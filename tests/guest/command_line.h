// The command line as the guest's configuration: words separated by blanks, "key=value" or "key".
// Words nobody asks for are ignored.

#ifndef RINGSIDE_TESTS_GUEST_COMMAND_LINE_H_
#define RINGSIDE_TESTS_GUEST_COMMAND_LINE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace guest {

class CommandLine {
 public:
  // `text` must stay in place as long as this object and what Get returned are in use.
  constexpr explicit CommandLine(std::string_view text) : text_(text) {}

  // The value of the first word that starts with "key="; `otherwise` if there is none.
  std::string_view Get(std::string_view key, std::string_view otherwise = "") const;

  // The value of word number `n` that starts with "key=", from 0 on; empty if there are not so
  // many.
  std::string_view GetNth(std::string_view key, size_t n) const;

  // What Get gives as a decimal number. A value that is not one gives `otherwise`.
  uint64_t GetNumber(std::string_view key, uint64_t otherwise) const;

  // Whether a check is asked for: "key=1".
  bool IsOn(std::string_view key) const { return Get(key) == "1"; }

 private:
  std::string_view text_;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_COMMAND_LINE_H_
