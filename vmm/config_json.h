// Reads JSON that may come from anybody, a configuration's or a server's: it is bounded in size,
// depth and members, and an object with the same key twice is refused. nlohmann's own parser takes
// a time that grows with the square of how many elements a list has where a callback looks on, and
// with that of how many keys an object has.
//
// Errors: InvalidArgument, in one line: "line 3: ..." and what is wrong there.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "vmm/option_type.h"

namespace ringside {

inline constexpr size_t kMostConfigBytes = 1 << 20;

struct JsonBounds {
  size_t bytes;
  size_t depth;
  size_t members;  // of an object; each key is held against those before it
};

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonBounds& bounds);
// Members that are null are as if they were not there, and whole numbers are whole however they are
// written.
absl::StatusOr<Json> ParseConfigJson(std::string_view text);

}  // namespace ringside
