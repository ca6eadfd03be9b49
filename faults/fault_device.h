// A filter around any backend whose requests meet the faults of a script (docs/faults.md).
//
// Threads and ownership: as BlockDevice.
// Errors: of a script that makes no sense, InvalidArgument in one line.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "block/block_backend.h"
#include "block/block_filter.h"
#include "faults/fault_channel.h"

namespace ringside {

struct FaultConfig {
  BlockBackend backend;
  std::string script = {};  // its path

  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const;
};

class FaultDevice final : public BlockFilter {
 public:
  // `name`: of the disk, in messages.
  FaultDevice(std::unique_ptr<BlockDevice> below, FaultScript script, std::string name,
              Logger logger);

  BlockStatistics Statistics() const override;
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  FaultState state_;
  CounterPool<FaultCounters> counters_;
};

}  // namespace ringside
