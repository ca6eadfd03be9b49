// A device of its own onto storage that others have too: a stand-in for a copy of it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "block/block_backend.h"

namespace ringside::testing {

class SharedView final : public BlockDevice {
 public:
  explicit SharedView(std::shared_ptr<BlockDevice> storage)
      : storage_(std::move(storage)), info_(storage_->info()) {}

  const BlockInfo& info() const override { return info_; }
  BlockStatistics Statistics() const override { return storage_->Statistics(); }
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override {
    return storage_->Open(io_thread);
  }

 private:
  const std::shared_ptr<BlockDevice> storage_;
  const BlockInfo info_;
};

struct SharedConfig {
  std::shared_ptr<BlockDevice> storage;
  std::string name = "shared";

  BackendDescription Describe() const { return {.name = name}; }
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& /*context*/) const {
    return std::make_unique<SharedView>(storage);
  }
};

}  // namespace ringside::testing
