// What a disk may become while its guest uses it.
//
// Errors: InvalidArgument, in one line that goes on from the disk's name.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "block/block_device.h"

namespace ringside {

// OK if a disk like this may have so many bytes from now on: no fewer, and whole blocks.
absl::Status CheckGrown(const BlockInfo& info, uint64_t size);

}  // namespace ringside
