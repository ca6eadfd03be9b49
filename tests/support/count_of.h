// One of the counters that a block device tells by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "block/block_counters.h"

namespace ringside::testing {

inline uint64_t CountOf(const std::vector<BlockCounter>& counters, std::string_view name) {
  const auto found = std::ranges::find(counters, name, &BlockCounter::name);
  if (found != counters.end()) return found->value;
  std::fprintf(stderr, "nothing counts '%.*s'\n", static_cast<int>(name.size()), name.data());
  std::abort();
}

}  // namespace ringside::testing
