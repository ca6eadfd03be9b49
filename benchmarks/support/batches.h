// Reads of 4 KiB through a channel, a batch at a time, for as long as there are calls.
#pragma once

#include <vector>

#include "benchmarks/support/turns.h"
#include "block/block_device.h"

namespace ringside::benchmarks {

// Submits a batch, and the next when all are done.
class Batches final : public Hook {
 public:
  static constexpr uint32_t kBytes = 4096;

  // `memory`: kBytes for each of a batch, in region 0.
  Batches(IoThread& io_thread, BlockChannel& channel, size_t batch, std::byte* memory)
      : io_thread_(io_thread), channel_(channel), reads_(batch) {
    for (size_t i = 0; i < batch; ++i) {
      Read& read = reads_[i];
      read.batches = this;
      read.segment = {.host = memory + i * kBytes, .length = kBytes, .region = 0};
      read.op = BlockOp::kRead;
      read.offset = i * kBytes;
      read.segments = {&read.segment, 1};
      read.done = [](BlockRequest& request) { static_cast<Read&>(request).Done(); };
    }
  }

  // Queued behind what the channel does at the end of the turn.
  void AfterSubmit(Hook& hook) { after_submit_ = &hook; }

  void RunAll(Calls& calls) {
    Event all_done;
    calls_ = &calls;
    all_done_ = &all_done;
    RunOn(io_thread_, [this] { io_thread_.AtPublish(*this); });
    all_done.Wait();
  }
  bool failed() const { return failed_; }

 private:
  struct Read : BlockRequest {
    void Done() {
      batches->failed_ |= result != 0;
      if (--batches->left_ == 0) batches->io_thread_.AtPublish(*batches);
    }
    Batches* batches = nullptr;
    Segment segment = {};
  };

  void Run() override {
    if (!calls_->More()) return all_done_->Notify();
    left_ = reads_.size();
    for (Read& read : reads_) {
      read.PutBack();
      channel_.Submit(read);
    }
    if (after_submit_ != nullptr) io_thread_.AtHandOver(*after_submit_);
  }

  IoThread& io_thread_;
  BlockChannel& channel_;
  std::vector<Read> reads_;
  Hook* after_submit_ = nullptr;
  Calls* calls_ = nullptr;
  size_t left_ = 0;
  bool failed_ = false;
  Event* all_done_ = nullptr;
};

}  // namespace ringside::benchmarks
