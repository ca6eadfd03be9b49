// A device around another, which is that other in all that a filter does not say itself.
//
// Threads and ownership: as BlockDevice; it owns what is below.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "block/block_device.h"

namespace ringside {

class BlockFilter : public BlockDevice {
 public:
  const BlockInfo& info() const override { return below_->info(); }
  BlockStatistics Statistics() const override { return below_->Statistics(); }
  std::optional<ContentId> KeepFound() override { return below_->KeepFound(); }
  std::atomic<int>* flush_error() override { return below_->flush_error(); }
  std::vector<ContentId> Found() const override { return below_->Found(); }
  absl::Status MapMemory(std::span<const MemoryRegion> regions) override {
    return below_->MapMemory(regions);
  }
  absl::Status Resize(std::optional<uint64_t> size) override { return below_->Resize(size); }
  void EndSoon() override { below_->EndSoon(); }

 protected:
  explicit BlockFilter(std::unique_ptr<BlockDevice> below) : below_(std::move(below)) {}

  BlockDevice& below() const { return *below_; }
  // What is below has counted, and behind that the filter's own.
  BlockStatistics StatisticsWith(std::vector<BlockCounter> own) const {
    BlockStatistics statistics = below_->Statistics();
    for (BlockCounter& counter : own) statistics.counters.push_back(std::move(counter));
    return statistics;
  }

 private:
  const std::unique_ptr<BlockDevice> below_;
};

}  // namespace ringside
