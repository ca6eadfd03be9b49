#include "block/block_backend.h"

namespace ringside {

BackendDescription BlockBackend::Describe() const {
  return calls_->describe(config_);
}

absl::Status BlockBackend::Announce(const std::string& disk, const BlockContext& context) const {
  return calls_->announce(config_, disk, context);
}

absl::StatusOr<std::unique_ptr<BlockDevice>> BlockBackend::Open(const BlockContext& context) const {
  return calls_->open(config_, context);
}

}  // namespace ringside
