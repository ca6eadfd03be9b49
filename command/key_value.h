// Options of the form "key=value,key=value".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

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

// The nanoseconds of a time from 0 to 1s. What is none is an error that begins with `name` and
// gives the example: "--iothread max", "32us".
absl::StatusOr<int64_t> ParseShortTime(const char* name, const std::string& value,
                                       const char* example);

}  // namespace ringside
