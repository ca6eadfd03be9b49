// What the channels of an overlay share: the map, the blocks that are busy, and the commits that
// make the map durable.
//
// A commit writes the map's changed pages, between two flushes of the file: what a page says is
// durable before the page, and the page before whoever waits for the commit knows. One is under way
// at a time; those who come meanwhile share the next. It runs on a channel of one who waits for it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/sync.h"
#include "overlay/block_map.h"
#include "overlay/busy_blocks.h"

namespace ringside {

struct OverlayState {
  // `keeps_map`: the map is written to a file; else it is in memory alone, and so is the data.
  OverlayState(std::unique_ptr<BlockMap> map_of, const OverlayHeader& header, uint64_t limit_bytes,
               bool keeps)
      : data_offset(header.data_offset),
        base_bytes(header.base_bytes),
        limit_blocks(limit_bytes == 0 ? UINT64_MAX : limit_bytes / kOverlayBlock),
        keeps_map(keeps),
        map(std::move(map_of)) {}

  const uint64_t data_offset;
  const uint64_t base_bytes;  // beyond, blocks that show the base are zeroes
  const uint64_t limit_blocks;
  UniqueFd counted;  // the file of the data, where there is a limit
  const bool keeps_map;
  bool has_new_name = false;  // the file was made, and its name is not durable; the commits'
  std::string path;

  // Whether anything was written since it was opened. Relaxed: only whoever closes it, when nobody
  // uses it any more, looks.
  std::atomic<bool> is_changed{false};
  void Change() {
    if (!is_changed.load(std::memory_order_relaxed)) {
      is_changed.store(true, std::memory_order_relaxed);
    }
  }

  Mutex mutex;
  // Its bits are read without the lock.
  const std::unique_ptr<BlockMap> map;
  BusyBlocks busy ABSL_GUARDED_BY(mutex);
  uint64_t reserved_blocks ABSL_GUARDED_BY(mutex) = 0;  // that writes under way will allocate
  bool commits ABSL_GUARDED_BY(mutex) = false;
  WaitList want_commit ABSL_GUARDED_BY(mutex);  // the next one
  WaitList in_commit ABSL_GUARDED_BY(mutex);    // the one under way

  // Whether so many more blocks are more than the limit. A write that lands behind a discard of its
  // blocks takes space of which the map does not know, so the file is asked, too: with some slack,
  // as it has metadata and may be allocated in larger pieces.
  bool IsBeyondLimit(uint64_t new_blocks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    constexpr uint64_t kSlackBlocks = (uint64_t{64} << 20) / kOverlayBlock;
    if (limit_blocks == UINT64_MAX || new_blocks == 0) return false;
    if (map->here_blocks() + reserved_blocks + new_blocks > limit_blocks) return true;
    struct stat info = {};
    if (fstat(counted.get(), &info) != 0) return false;
    const auto taken = static_cast<uint64_t>(info.st_blocks) * 512 / kOverlayBlock;
    return taken > limit_blocks + kSlackBlocks + data_offset / kOverlayBlock;
  }
};

}  // namespace ringside
