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
 protected:
  FileChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters)
      : io_thread_(io_thread), context_{.target = target, .counters = counters} {}
  ~FileChannel() override { counters().taken.store(false, std::memory_order_release); }

  void Begin(FileOp& op, BlockRequest& request);
  // Not from within Submit or Issue.
  void StepDone(FileOp& op, int64_t result);
  // The same, from anywhere: takes effect in a later turn.
  void StepFailed(FileOp& op, int64_t result);

  // Whether requests may be done without Issue, at the end of the turn.
  bool serves_inline() const { return context_.target.inline_io != InlineIo::kNever; }
  IoThread& io_thread() { return io_thread_; }
  FileTarget& target() { return context_.target; }
  FileCounters& counters() { return context_.counters; }

 private:
  // In pieces of this size sources and other channels get their turn between inline requests.
  static constexpr uint64_t kInlineBytesATurn = uint64_t{256} << 10;

  // Starts op.step(), and calls StepDone with its result later.
  virtual void Issue(FileOp& op) = 0;
  // The operation may be used for another request.
  virtual void Recycle(FileOp& op) = 0;

  void Proceed(FileOp& op, FileOp::Next next);
  void Finish(FileOp& op);
  void ServeInline();
  void RunLater();

  IoThread& io_thread_;
  FileOpContext context_;
  InlineServer inline_server_{context_.target};
  FileOpQueue to_serve_;  // by serve_
  FileOpQueue finished_;  // to be reported by completer_
  FileOpQueue failed_;    // whose step has ended without being started
  FileOpQueue want_bounce_;
  HookTo<FileChannel, &FileChannel::RunLater> completer_{*this};
  HookTo<FileChannel, &FileChannel::ServeInline> serve_{*this};
};

}  // namespace ringside
