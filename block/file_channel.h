// What the engines have in common: requests become operations, operations make steps, and what
// needs no I/O is done in a later turn all the same.
//
// Threads: the I/O thread's. The target and the counters outlive the channel, which gives the
// counters back.
#pragma once

#include "block/block_device.h"
#include "block/file_op.h"
#include "block/inline_server.h"

namespace ringside {

class FileChannel : public BlockChannel {
 public:
  void Submit(BlockRequest& request) final;

 protected:
  FileChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters)
      : io_thread_(io_thread),
        context_{.target = target, .counters = counters},
        inline_server_(target, counters) {}
  ~FileChannel() override { counters().taken.store(false, std::memory_order_release); }

  void Begin(FileOp& op, BlockRequest& request) { Proceed(op, op.Start(request, context_)); }
  // Not from within Submit or Issue.
  void StepDone(FileOp& op, int64_t result);
  // The same, from anywhere: takes effect in a later turn.
  void StepFailed(FileOp& op, int64_t result);

  IoThread& io_thread() { return io_thread_; }
  FileTarget& target() { return context_.target; }
  FileCounters& counters() { return context_.counters; }

  // Whether some requests are done at the end of the turn without the engine.
  bool serves_inline() const { return context_.target.inline_io != InlineIo::kNever; }

 private:
  // The rest is left for the next turn, so that these are signalled and others get their share.
  static constexpr uint64_t kInlineBytesATurn = uint64_t{64} << 10;

  // An operation of the engine's, begun.
  virtual void SubmitToEngine(BlockRequest& request) = 0;
  // Starts op.step(), and calls StepDone with its result later.
  virtual void Issue(FileOp& op) = 0;
  // The operation may be used for another request.
  virtual void Recycle(FileOp& op) = 0;

  void Proceed(FileOp& op, FileOp::Next next);
  void Finish(FileOp& op);
  void RunLater();
  void ServeInline();

  IoThread& io_thread_;
  FileOpContext context_;
  InlineServer inline_server_;
  Fifo<BlockRequest> to_serve_;
  FileOpQueue finished_;  // to be reported by completer_
  FileOpQueue failed_;    // whose step has ended without being started
  FileOpQueue want_bounce_;
  HookTo<FileChannel, &FileChannel::RunLater> completer_{*this};
  HookTo<FileChannel, &FileChannel::ServeInline> serve_{*this};
};

}  // namespace ringside
