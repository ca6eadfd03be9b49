// Reads and writes that the I/O thread does itself, because they cannot wait for a storage: a
// system call that finds the bytes in memory is done sooner than one that hands them to an engine.
//
// It does a small request whole, or leaves the whole to the engine. So errors, short transfers, the
// end of the file and the demands of O_DIRECT stay FileOp's business. Of a large one it does what
// FileOp makes of it: its steps.
//
// Writes to a page cache are not among them: RWF_NOWAIT does not keep them from waiting for a file
// system that is frozen (file_start_write in the kernel's vfs_writev).
//
// Threads: the channel's. Nothing is allocated.
// Spec: preadv2(2) under RWF_NOWAIT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/uio.h>

#include "block/block_device.h"
#include "file/file_op.h"
#include "file/file_target.h"

namespace ringside {

class InlineServer {
 public:
  // Larger requests are FileOp's: all else on the thread would wait longer than these 12 us.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 10;
  static constexpr size_t kMostSegments = 32;
  // When nothing is in the page cache, one request of this many and one is tried.
  static constexpr unsigned kMostSkipped = 63;

  InlineServer(FileTarget& target, FileCounters& counters) : target_(target), counters_(counters) {}

  // Whether to try.
  bool Takes(const BlockRequest& request) const {
    return target_.inline_io != InlineIo::kNever && MayServe(request);
  }
  // How many bytes were transferred: all, with result 0, or none. Only of what Takes has taken.
  uint64_t Serve(BlockRequest& request);
  // The result of a transfer's step, or kNotHere: it is the engine's to do.
  static constexpr int64_t kNotHere = INT64_MIN;
  int64_t Perform(const FileStep& step);

 private:
  bool MayServe(const BlockRequest& request) const;
  bool MayServe(bool write, bool durable) const;
  int64_t Try(bool read, std::span<const iovec> vectors, uint64_t offset);
  bool Skips();
  void Missed();

  FileTarget& target_;
  FileCounters& counters_;
  // With RWF_NOWAIT: how many are left to the engine after a miss, and have been.
  unsigned to_skip_ = 0;
  unsigned skipped_ = 0;
};

}  // namespace ringside
