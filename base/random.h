// Random bytes of the host's kernel.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace ringside {

// Fills all of it. The kernel's generator is seeded long before anybody starts a machine, so this
// does not block.
absl::Status FillRandom(std::span<std::byte> bytes);

}  // namespace ringside
