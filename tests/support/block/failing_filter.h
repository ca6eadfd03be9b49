// A filter around any backend that fails some of the requests, as a test says.
//
// Threads: Failing may be changed and looked at by any; all else as BlockDevice.
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/status.h"
#include "block/block_backend.h"
#include "block/block_filter.h"
#include "block/fifo.h"

namespace ringside::testing {

struct Failing {
  std::atomic<uint64_t> every{0};  // one of so many requests of a channel fails; 0: none does
  std::atomic<int> error{ENOSPC};
  std::atomic<uint64_t> failed{0};
};

class FailingChannel final : public BlockChannel {
 public:
  FailingChannel(std::unique_ptr<BlockChannel> below, Failing& how, IoThread& io_thread)
      : below_(std::move(below)), how_(how), io_thread_(io_thread) {}

  void Submit(BlockRequest& request) override {
    const uint64_t every = how_.every;
    if (every == 0 || ++submitted_ % every != 0) return below_->Submit(request);
    ++how_.failed;
    to_fail_.Push(request);
    io_thread_.AtPublish(fail_);
  }
  void Cancel() override { below_->Cancel(); }

 private:
  void Fail() {
    to_fail_.TakeEach([this](BlockRequest& request) {
      request.result = -how_.error;
      request.done(request);
    });
  }

  const std::unique_ptr<BlockChannel> below_;
  Failing& how_;
  IoThread& io_thread_;
  uint64_t submitted_ = 0;
  Fifo<BlockRequest> to_fail_;
  HookTo<FailingChannel, &FailingChannel::Fail> fail_{*this};
};

class FailingDevice final : public BlockFilter {
 public:
  FailingDevice(std::unique_ptr<BlockDevice> below, std::shared_ptr<Failing> how)
      : BlockFilter(std::move(below)), how_(std::move(how)) {}

  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override {
    RINGSIDE_ASSIGN_OR_RETURN(auto channel, below().Open(io_thread));
    return std::make_unique<FailingChannel>(std::move(channel), *how_, io_thread);
  }

 private:
  const std::shared_ptr<Failing> how_;
};

struct FailingConfig {
  BlockBackend backend;
  std::shared_ptr<Failing> how;

  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const {
    RINGSIDE_ASSIGN_OR_RETURN(auto below, backend.Open(context));
    return std::make_unique<FailingDevice>(std::move(below), how);
  }
};

}  // namespace ringside::testing
