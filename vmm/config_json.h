// Reads the text of a configuration as JSON. The text may come from anybody: it is bounded in size,
// depth and members, and an object with the same key twice is refused.
//
// Errors: InvalidArgument, in one line: "line 3: ..." and what is wrong there.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "vmm/option_type.h"

namespace ringside {

inline constexpr size_t kMostConfigBytes = 1 << 20;

absl::StatusOr<Json> ParseConfigJson(std::string_view text);

}  // namespace ringside
