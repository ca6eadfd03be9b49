// A request on its way through a file: which step to ask of the kernel next, and what its result
// means. The same for all engines, and without any system call.
//
// It submits short transfers again from where they stopped, reads zeroes past the end of the file,
// repeats after EINTR and EAGAIN, copies through aligned memory where O_DIRECT asks for it, makes
// writes, discards and zeroes durable, and does without hole punching where there is none. What is
// large goes in parts, so that no step takes long.
//
// Threads: the channel's. Nothing is allocated in the steady state.
// Spec: preadv2(2), fallocate(2), open(2) under O_DIRECT.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"
#include "block/segment_cursor.h"
#include "file/file_target.h"

namespace ringside {

class WorkerClient;

// One operation of the kernel.
struct FileStep {
  enum class Kind : uint8_t { kRead, kWrite, kSync, kAllocate };
  Kind kind;
  int flags;  // of preadv2 and pwritev2, or the mode of fallocate
  uint64_t offset;
  uint64_t length;  // the sum of the vectors; of fallocate
  iovec* vectors;
  unsigned vector_count;
};

// Does a step, in the calling thread. Its result, or -errno.
int64_t PerformStep(int fd, const FileStep& step);

// What the operations of one channel share.
struct FileOpContext {
  FileTarget& target;
  FileCounters& counters;
  // A transfer of more bytes than these goes in parts, of at most so many: a multiple of what
  // O_DIRECT asks for, which may change at any time.
  uint64_t bulk_bytes = UINT64_MAX;
  uint64_t most_a_part = UINT64_MAX;
  OpMemory memory = {};
};

class FileOp {
 public:
  enum class Next {
    kStep,  // step() is to be done, and Advance called with its result
    kWait,  // all bounce buffers are in use: Resume when one has been given back
    kDone,  // result() is the request's
  };

  FileOp() = default;
  FileOp(const FileOp&) = delete;
  FileOp& operator=(const FileOp&) = delete;

  Next Start(BlockRequest& request, FileOpContext& context);
  Next Resume();
  Next Advance(int64_t result);
  // For a flush that was to wait before it is begun: one before it may have failed.
  Next Sync();
  // Instead of the step.
  Next GiveUp() { return Done(-ECANCELED); }
  // Before the step is begun: what it writes is in place.
  void Load();
  // Gives back what it took: whether that was a bounce buffer. After kDone; it may Start again.
  bool Release();

  const FileStep& step() const { return step_; }
  BlockRequest& request() const { return *request_; }
  // Whether it is a transfer in parts.
  bool bulk() const { return total_ > context_->bulk_bytes; }
  int result() const { return result_; }

  // For whoever has the operation at the moment.
  FileOp* next = nullptr;
  WorkerClient* client = nullptr;
  int64_t step_result = 0;

 private:
  enum class Zeroing : uint8_t { kPunch, kZeroRange, kWrite };
  static constexpr size_t kInlineVectors = 8;
  // Of fallocate, which holds up all writes of the file: on tmpfs some 50 ms a GiB.
  static constexpr uint64_t kMostAllocated = uint64_t{256} << 20;

  Next StartTransfer();
  Next StartFlush();
  Next StartAllocation();
  Next PrepareTransfer();
  uint64_t MostAStep() const { return bulk() ? context_->most_a_part : total_; }
  void PrepareVectors();
  void PrepareZeroes();
  Next AdvanceTransfer(int64_t result);
  Next AdvanceSync(int64_t result);
  Next AdvanceAllocation(int64_t result);
  Next Allocate(Zeroing how);
  Next SyncOrDone();
  void NoteLost(int64_t error);
  int LostBefore() const;
  Next Done(int result);

  bool writing() const { return step_.kind == FileStep::Kind::kWrite; }
  bool DirectTakes(const Segment& segment) const;
  void MoveBy(uint64_t count);
  // Copies between the bounce buffer and the segments from where the transfer is, without moving.
  void CopyBounced(uint64_t count);
  void ZeroTheRest(uint64_t count);

  BlockRequest* request_ = nullptr;
  FileOpContext* context_ = nullptr;
  FileStep step_ = {};
  int result_ = 0;
  bool bounced_ = false;
  bool writes_zeroes_ = false;
  Zeroing zeroing_ = Zeroing::kPunch;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
  SegmentCursor cursor_;  // where the transfer is

  std::byte* bounce_ = nullptr;
  VectorBlock* block_ = nullptr;
  std::array<iovec, kInlineVectors> inline_vectors_;
};

using FileOpQueue = Fifo<FileOp>;

}  // namespace ringside
