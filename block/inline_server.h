// Reads and writes that the I/O thread does itself, because they cannot wait for a storage: a
// system call that finds the bytes in memory is done sooner than one that hands them to an engine.
//
// It does a request whole, or leaves the whole to the engine. So errors, short transfers, the end
// of the file and the demands of O_DIRECT stay FileOp's business.
//
// Threads: the channel's. Nothing is allocated.
// Source: preadv2(2) under RWF_NOWAIT.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "block/block_device.h"
#include "block/file_target.h"

namespace ringside {

class InlineServer {
 public:
  // Larger requests go to the engine: all else on the thread would wait longer than these 12 us,
  // and what is saved is about a tenth.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 10;
  static constexpr size_t kMostSegments = 32;
  // When nothing is in the page cache, one request of this many and one is tried.
  static constexpr unsigned kMostSkipped = 63;

  InlineServer(FileTarget& target, FileCounters& counters) : target_(target), counters_(counters) {}

  // Whether to try.
  bool Takes(const BlockRequest& request) const;
  // How many bytes were transferred: all, with result 0, or none. Only of what Takes has taken.
  uint64_t Serve(BlockRequest& request);

 private:
  // With RWF_NOWAIT: how many requests are left to the engine after a miss, and have been.
  struct Misses {
    unsigned to_skip = 0;
    unsigned skipped = 0;
  };

  void Count(const BlockRequest& request, uint64_t bytes);

  FileTarget& target_;
  FileCounters& counters_;
  std::array<Misses, 2> misses_;  // of reads, of writes
};

}  // namespace ringside
