// A file channel whose engine keeps its steps until they are completed by hand.
//
// Threads: the I/O thread's.
#pragma once

#include <deque>

#include "file/file_channel.h"

namespace ringside::testing {

class HoldingChannel final : public FileChannel {
 public:
  HoldingChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters)
      : FileChannel(io_thread, target, counters) {}

  size_t held() const { return held_.size(); }
  const FileStep& step(size_t i) const { return held_[i]->step(); }
  uint64_t held_bytes() const {
    uint64_t bytes = 0;
    for (const FileOp* op : held_) bytes += op->step().length;
    return bytes;
  }
  void CompleteFirst(int64_t result) {
    FileOp* op = held_.front();
    held_.pop_front();
    StepDone(*op, result);
  }

 private:
  void SubmitToEngine(BlockRequest& request) override { Start(ops_.emplace_back(), request); }
  void Issue(FileOp& op) override { held_.push_back(&op); }
  void Recycle(FileOp&) override {}

  std::deque<FileOp> ops_;  // stay where they are
  std::deque<FileOp*> held_;
};

}  // namespace ringside::testing
