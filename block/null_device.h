// A disk that moves no bytes: every request succeeds, a read leaves its buffers as they were, and
// what was written is nowhere. It shows what a request costs without a storage behind it.
//
// Threads and ownership: as in block_device.h.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "block/block_device.h"

namespace ringside {

struct NullConfig {
  uint64_t size = 0;  // bytes, a multiple of 512
};

class NullDevice final : public BlockDevice {
 public:
  // InvalidArgument, with the remedy, for a size that cannot be.
  static absl::StatusOr<std::unique_ptr<NullDevice>> Create(const NullConfig& config);

  const BlockInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  explicit NullDevice(uint64_t size) : info_{.size = size, .can_discard = true} {}

  const BlockInfo info_;
};

}  // namespace ringside
