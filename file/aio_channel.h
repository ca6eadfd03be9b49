// aio=native: Linux AIO, whose completions are read from a ring in memory. What it lacks
// (fallocate) or would block for goes to the device's worker threads.
//
// Threads: made, used and destroyed on its I/O thread.
// Spec: io_setup(2), io_submit(2), io_getevents(2); the ring as in Linux' fs/aio.c, which keeps
// it for user space since 2.6.
#pragma once

#include <atomic>
#include <linux/aio_abi.h>
#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "file/file_channel.h"
#include "file/worker_pool.h"

namespace ringside {

class AioChannel final : public FileChannel, private WorkerClient::Receiver {
 public:
  // FailedPrecondition where there is none, or the system's limit of requests is used up.
  static absl::StatusOr<std::unique_ptr<AioChannel>> Create(IoThread& io_thread, FileTarget& target,
                                                            FileCounters& counters,
                                                            WorkerPool& workers);
  ~AioChannel() override;

 private:
  static constexpr unsigned kMaxInFlight = 256;
  static constexpr unsigned kBatch = 64;

  struct Op final : FileOp {
    iocb control = {};
    Op* next_free = nullptr;
  };

  // The completions.
  class Completions final : public Source {
   public:
    Completions(AioChannel& channel, int wake_fd)
        : Source(wake_fd, Watching::kWhileWanted), channel_(channel) {}
    bool HasWork() override { return channel_.HasCompletions(); }
    void Run() override { channel_.Reap(); }
    // The kernel signals every completion: what is in flight can no longer be told otherwise. So
    // the thread stops listening instead.
    void EnableNotify() override { channel_.io_thread().Want(*this, true); }
    void DisableNotify() override { channel_.io_thread().Want(*this, false); }

   private:
    AioChannel& channel_;
  };

  // What io_setup maps and calls aio_context_t.
  struct Ring {
    uint32_t id;
    uint32_t size;
    uint32_t head;  // ours
    uint32_t tail;  // the kernel's
    uint32_t magic;
    uint32_t compatible_features;
    uint32_t incompatible_features;
    uint32_t header_length;
  };

  AioChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters, WorkerPool& workers,
             EventFd wake, aio_context_t context);

  void SubmitToEngine(BlockRequest& request) override { Start(ops_.Take(), request); }
  void Issue(FileOp& op) override;
  void Recycle(FileOp& op) override { ops_.Give(static_cast<Op&>(op)); }
  void StepDone(FileOp& op, int64_t result) override { FileChannel::StepDone(op, result); }

  void Prepare(Op& op);
  void HandOverWaiting();
  bool Refused(int error);
  uint32_t Head() const;
  bool HasCompletions();
  void Reap();
  void ReapByCall();
  void Completed(const io_event& event);

  const EventFd wake_;
  const aio_context_t aio_;
  Ring* ring_ = nullptr;  // null if it is not the ring we know: io_getevents instead
  unsigned in_flight_ = 0;
  bool has_sync_ = true;
  SlabPool<Op> ops_;
  FileOpQueue waiting_;
  WorkerClient workers_;
  Completions completions_;
  HookTo<AioChannel, &AioChannel::HandOverWaiting> submit_{*this};
};

}  // namespace ringside
