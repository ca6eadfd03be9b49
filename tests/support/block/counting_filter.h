// A filter around any backend, as an embedder would write one: it counts the requests that pass, by
// kind. Nothing else knows of it, and it may hold another of its like.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "block/block_backend.h"

namespace ringside::testing {

struct CountingConfig {
  BlockBackend backend;
  std::string prefix;  // of the names of its counters

  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const;
};

struct CountingCounters : ChannelCounters {
  std::array<Named, 5> requests = {Named(*this, "reads"), Named(*this, "writes"),
                                   Named(*this, "flushes"), Named(*this, "discards"),
                                   Named(*this, "zeroes")};  // by BlockOp
};

class CountingChannel final : public BlockChannel {
 public:
  CountingChannel(std::unique_ptr<BlockChannel> below, CountingCounters& counters)
      : below_(std::move(below)), counters_(counters) {}
  ~CountingChannel() override { counters_.taken.store(false, std::memory_order_release); }

  void Submit(BlockRequest& request) override {
    counters_.requests[static_cast<size_t>(request.op)].Add();
    below_->Submit(request);
  }
  void Cancel() override { below_->Cancel(); }

 private:
  const std::unique_ptr<BlockChannel> below_;
  CountingCounters& counters_;
};

class CountingDevice final : public BlockDevice {
 public:
  CountingDevice(std::unique_ptr<BlockDevice> below, std::string prefix)
      : below_(std::move(below)), prefix_(std::move(prefix)) {}

  const BlockInfo& info() const override { return below_->info(); }
  BlockStatistics Statistics() const override {
    BlockStatistics statistics = below_->Statistics();
    for (const BlockCounter& own : counters_.Sums()) {
      statistics.counters.push_back({prefix_ + own.name, own.value});
    }
    return statistics;
  }
  absl::Status MapMemory(std::span<const MemoryRegion> regions) override {
    return below_->MapMemory(regions);
  }
  void EndSoon() override { below_->EndSoon(); }
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override {
    RINGSIDE_ASSIGN_OR_RETURN(auto below, below_->Open(io_thread));
    return std::make_unique<CountingChannel>(std::move(below), counters_.Take());
  }

 private:
  const std::unique_ptr<BlockDevice> below_;
  const std::string prefix_;
  CounterPool<CountingCounters> counters_;
};

inline absl::StatusOr<std::unique_ptr<BlockDevice>> CountingConfig::Open(
    const BlockContext& context) const {
  RINGSIDE_ASSIGN_OR_RETURN(auto below, backend.Open(context));
  return std::make_unique<CountingDevice>(std::move(below), prefix);
}

}  // namespace ringside::testing
