// Sizes as people write them: bytes, or a number with K, M, G or T (powers of 1024).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ringside {

// "512" or "64K"; "1.5G" is refused: whole numbers only.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);

// The shortest exact form ("3G", "640K", "513"); odd bytes from 1M on are rounded up to whole M.
std::string FormatSize(uint64_t bytes);

}  // namespace ringside
