#include "block/block_resize.h"

#include "base/status.h"

namespace ringside {

absl::Status CheckGrown(const BlockInfo& info, uint64_t size) {
  const uint64_t now = info.size;
  if (size < now) {
    return BadInput(
        "it has %d bytes, and %d would be fewer: a disk that a guest uses is made larger only", now,
        size);
  }
  if (size % info.logical_block != 0) {
    return BadInput("%d bytes are not whole blocks of %d: give a multiple", size,
                    info.logical_block);
  }
  return absl::OkStatus();
}

}  // namespace ringside
