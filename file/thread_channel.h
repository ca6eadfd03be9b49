// aio=threads: every step in a worker thread of the device. Works everywhere.
#pragma once

#include "file/file_channel.h"
#include "file/worker_pool.h"

namespace ringside {

class ThreadChannel final : public FileChannel, private WorkerClient::Receiver {
 public:
  ThreadChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters, WorkerPool& pool)
      : FileChannel(io_thread, target, counters), workers_(pool, io_thread, *this) {}

 private:
  struct Op final : FileOp {
    Op* next_free = nullptr;
  };

  void SubmitToEngine(BlockRequest& request) override {
    io_thread().HandsOverAtOnce();
    Start(ops_.Take(), request);
  }
  void Issue(FileOp& op) override { workers_.Do(op); }
  void Recycle(FileOp& op) override { ops_.Give(static_cast<Op&>(op)); }
  void StepDone(FileOp& op, int64_t result) override { FileChannel::StepDone(op, result); }

  SlabPool<Op> ops_;
  WorkerClient workers_;
};

}  // namespace ringside
