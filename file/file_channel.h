// What the engines have in common: requests become operations, operations make steps, and what
// needs no I/O is done in a later turn all the same.
//
// No request holds the thread or the kernel for long. A transfer that is large goes in parts; parts
// of all large ones take turns; where bytes are copied the thread copies them itself, if they are
// in memory, rather than have the kernel's or the device's threads do it side by side. What a turn
// may begin is bounded. One fallocate is under way at a time: they exclude each other in the
// kernel, and one that has not begun can be recalled. So is one fsync: those that are asked for
// meanwhile share the next one, and take none of the threads on which the kernel waits for them.
//
// Threads: the I/O thread's. The target and the counters outlive the channel, which gives the
// counters back.
#pragma once

#include "block/block_device.h"
#include "file/file_op.h"
#include "file/inline_server.h"

namespace ringside {

class FileChannel : public BlockChannel {
 public:
  void Submit(BlockRequest& request) final;

 protected:
  FileChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters);
  ~FileChannel() override { counters().taken.store(false, std::memory_order_release); }

  void Start(FileOp& op, BlockRequest& request) { Proceed(op, op.Start(request, context_)); }
  // Not from within Submit or Issue.
  void StepDone(FileOp& op, int64_t result);
  // The same, from anywhere: takes effect in a later turn.
  void StepFailed(FileOp& op, int64_t result);

  IoThread& io_thread() { return io_thread_; }
  FileTarget& target() { return context_.target; }
  FileCounters& counters() { return context_.counters; }

 private:
  // The rest is left for the next turn, so that these are signalled and others get their share.
  static constexpr uint64_t kInlineBytesATurn = uint64_t{64} << 10;
  // What may be begun in a turn by requests that are not large: read from the page cache, that is
  // 40 us; with O_DIRECT it is a full queue of pages.
  static constexpr uint64_t kCopiedATurn = uint64_t{256} << 10;
  static constexpr uint64_t kDirectATurn = uint64_t{1} << 20;
  // A part of a large one, and what all of them may begin in a turn. Copied, 64 KiB are some 10 us;
  // where others share the thread a quarter of that, since it is what each of theirs waits.
  static constexpr uint64_t kCopiedPart = uint64_t{64} << 10;
  static constexpr uint64_t kSharedPart = uint64_t{16} << 10;
  static constexpr uint64_t kDirectPart = uint64_t{1} << 20;

  // Bytes begun in the turn at hand.
  struct Begun {
    // Whether they may be begun too. Always, if nothing else was.
    bool Take(uint64_t now, uint64_t length, uint64_t most);
    uint64_t turn = 0;
    uint64_t bytes = 0;
  };

  // An operation of the engine's, begun.
  virtual void SubmitToEngine(BlockRequest& request) = 0;
  // Starts op.step(), and calls StepDone with its result later.
  virtual void Issue(FileOp& op) = 0;
  // The operation may be used for another request.
  virtual void Recycle(FileOp& op) = 0;

  uint64_t turn() const { return io_thread_.stats().turns.Get(); }
  void Proceed(FileOp& op, FileOp::Next next);
  void Step(FileOp& op);
  void Transfer(FileOp& op);
  void Allocate(FileOp& op);
  void AllocationDone();
  void Sync(FileOp& op);
  void SyncDone(int64_t result);
  void Begin(FileOp& op);
  void BeginHeld();
  void BeginPart(FileOp& op);
  void Finish(FileOp& op);
  void RunLater();
  void ServeInline();

  IoThread& io_thread_;
  const bool copies_;           // the bytes are the thread's to move
  const uint64_t most_a_turn_;  // of those that are not large
  FileOpContext context_;
  InlineServer inline_server_;
  Fifo<BlockRequest> to_serve_;
  FileOpQueue finished_;  // to be reported by completer_
  FileOpQueue failed_;    // whose step has ended without being started
  FileOpQueue want_bounce_;
  // Steps for the turns to come: of transfers in parts, and of the others.
  FileOpQueue parts_;
  FileOpQueue held_;
  Begun begun_parts_;
  Begun begun_;
  FileOpQueue want_allocation_;
  bool allocating_ = false;
  FileOpQueue want_sync_;    // that came while one was under way, which need not cover them
  FileOpQueue shares_sync_;  // for which the one under way is enough
  bool syncing_ = false;
  bool begins_held_ = false;
  HookTo<FileChannel, &FileChannel::RunLater> completer_{*this};
  HookTo<FileChannel, &FileChannel::ServeInline> serve_{*this};
  HookTo<FileChannel, &FileChannel::BeginHeld> begin_held_{*this};
};

}  // namespace ringside
