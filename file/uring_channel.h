// aio=io_uring: every step on the I/O thread's own ring, on a registered file.
//
// Threads: made, used and destroyed on the I/O thread whose ring it is.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "file/file_channel.h"
#include "poll/uring.h"

namespace ringside {

class UringChannel final : public FileChannel {
 public:
  // The thread has a ring.
  static absl::StatusOr<std::unique_ptr<UringChannel>> Create(IoThread& io_thread,
                                                              FileTarget& target,
                                                              FileCounters& counters);
  ~UringChannel() override;

  void Cancel() override { ring_.CancelFile(file_); }

 private:
  struct Op final : FileOp, UringOp {
    void Complete(int32_t result) override { channel->StepDone(*this, result); }
    UringChannel* channel = nullptr;
    Op* next_free = nullptr;
  };

  UringChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters, int file)
      : FileChannel(io_thread, target, counters), ring_(*io_thread.uring()), file_(file) {}

  void SubmitToEngine(BlockRequest& request) override;
  void Issue(FileOp& op) override;
  void Recycle(FileOp& op) override { ops_.Give(static_cast<Op&>(op)); }
  bool Push(Op& op);
  void PushWaiting();  // what the ring had no room for

  Uring& ring_;
  const int file_;
  SlabPool<Op> ops_;
  FileOpQueue waiting_;
  HookTo<UringChannel, &UringChannel::PushWaiting> retry_{*this};
};

}  // namespace ringside
