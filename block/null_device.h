// A disk that moves no bytes: every request succeeds, a read leaves its buffers as they were, and
// what was written is nowhere. It shows what a request costs without a storage behind it; with a
// latency, how an I/O thread waits for one whose service time is known.
//
// Threads and ownership: as in block_device.h.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "block/block_backend.h"

namespace ringside {

class NullDevice final : public BlockDevice {
 public:
  static constexpr int64_t kMaxLatencyNs = 1'000'000'000;

  // InvalidArgument, with the remedy, for a size or a latency that cannot be.
  static absl::StatusOr<std::unique_ptr<NullDevice>> Create(const NullConfig& config);

  const BlockInfo& info() const override { return info_; }
  BlockStatistics Statistics() const override { return {.engine = "null"}; }
  absl::Status Resize(std::optional<uint64_t> size) override;
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  explicit NullDevice(const NullConfig& config)
      : info_{.size = config.size, .can_discard = true}, latency_ns_(config.latency_ns) {}

  BlockInfo info_;
  const int64_t latency_ns_;
};

}  // namespace ringside
