// Reads and writes that the I/O thread does itself, because they cannot wait for a storage: a
// system call that finds the bytes in memory is done sooner than one that hands them to an engine.
//
// Threads: the channel's.
// Source: preadv2(2) under RWF_NOWAIT.
#pragma once

#include <cstdint>

#include "block/file_op.h"
#include "block/file_target.h"

namespace ringside {

class InlineServer {
 public:
  // Larger steps go to the engine: they would hold up everything else on the thread.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 10;

  explicit InlineServer(FileTarget& target) : target_(target) {}

  // Whether to try at all.
  bool Takes(const FileStep& step) const;
  // How many bytes were moved; 0: nothing was, and the engine is to do it, or to find out why not.
  uint64_t Perform(const FileStep& step);

 private:
  // After as many misses in a row as make it worth its while, one of kMostSkipped is tried.
  static constexpr unsigned kMostSkipped = 63;

  std::atomic<bool>& has_nowait(const FileStep& step) const {
    return step.kind == FileStep::Kind::kRead ? target_.has_nowait_reads
                                              : target_.has_nowait_writes;
  }
  uint64_t PerformCached(const FileStep& step);

  FileTarget& target_;
  unsigned skip_ = 0;  // how many are left to the engine after a miss
  unsigned skipped_ = 0;
};

}  // namespace ringside
