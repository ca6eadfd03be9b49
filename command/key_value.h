// Options of the form "key=value,key=value".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {

struct KeyValue {
  std::string key;
  std::string value;
};

// A comma in a value is written twice. A part that is no key=value is an error, which ends in
// `hint` and that part: "a file is given as path=".
absl::StatusOr<std::vector<KeyValue>> ParseKeyValues(const std::string& option,
                                                     const std::string& text,
                                                     const std::string& hint);

// The enumerator among `choices` whose name is `value`; nothing if none has it.
template <typename Enum, size_t kCount>
std::optional<Enum> ByName(const std::string& value, const std::array<Enum, kCount>& choices,
                           const char* (*name_of)(Enum)) {
  for (const Enum choice : choices) {
    if (value == name_of(choice)) return choice;
  }
  return std::nullopt;
}

// The same. What is none is an error that begins with `name`, "--disk cache", and has the nearest.
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> Choose(const char* name, const std::string& value,
                            const std::array<Enum, kCount>& choices, const char* (*name_of)(Enum)) {
  if (const auto chosen = ByName(value, choices, name_of)) return *chosen;
  std::vector<std::string> names;
  names.reserve(kCount);
  for (const Enum choice : choices) names.emplace_back(name_of(choice));
  return BadInput("%s='%s' is unknown; did you mean '%s'?", name, value, Nearest(value, names));
}

// The nanoseconds of a time from 0 to 1s. What is none is an error that begins with `name` and
// gives the example: "--iothread max", "32us".
absl::StatusOr<int64_t> ParseShortTime(const char* name, const std::string& value,
                                       const char* example);

}  // namespace ringside
