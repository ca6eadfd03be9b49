// A filter around any backend that records its writes, discards, zeroes and flushes
// (faults/record_file.h). Reads pass by.
//
// Threads and ownership: as BlockDevice.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "block/block_backend.h"
#include "block/block_filter.h"
#include "block/op_memory.h"
#include "faults/record_file.h"

namespace ringside {

struct RecordConfig {
  BlockBackend backend;
  RecordOptions options = {};

  BackendDescription Describe() const;
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const;
};

struct RecordCounters : ChannelCounters {
  Named recorded{*this, "recorded"};      // requests, to their ends
  Named unrecorded{*this, "unrecorded"};  // that came, or ended, after the record's end
};

class RecordChannel final : public BlockChannel {
 public:
  RecordChannel(std::unique_ptr<BlockChannel> below, RecordFile& file, RecordCounters& counters)
      : below_(std::move(below)), file_(file), counters_(counters) {}
  ~RecordChannel() override { counters_.taken.store(false, std::memory_order_release); }

  void Submit(BlockRequest& request) override;
  void Cancel() override { below_->Cancel(); }

 private:
  struct Op : BlockRequest {
    RecordChannel* channel = nullptr;
    BlockRequest* request = nullptr;
    uint64_t number = 0;
    Op* next_free = nullptr;
  };
  void Ended(Op& op);

  const std::unique_ptr<BlockChannel> below_;
  RecordFile& file_;
  RecordCounters& counters_;
  SlabPool<Op> ops_;
};

class RecordDevice final : public BlockFilter {
 public:
  RecordDevice(std::unique_ptr<BlockDevice> below, std::unique_ptr<RecordFile> file)
      : BlockFilter(std::move(below)), file_(std::move(file)) {}

  BlockStatistics Statistics() const override;
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  const std::unique_ptr<RecordFile> file_;
  CounterPool<RecordCounters> counters_;
};

}  // namespace ringside
