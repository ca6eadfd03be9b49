// What the channels of an overlay count, beside what its file's count.
//
// Threads: as ChannelCounters.
#pragma once

#include "block/block_counters.h"

namespace ringside {

struct OverlayCounters : ChannelCounters {
  Named base_reads{*this, "overlay_base_reads"};    // reads of the base, for guests and for copies
  Named slow_writes{*this, "overlay_slow_writes"};  // writes, discards and zeroes to other blocks
  Named copies{*this, "overlay_copies"};            // blocks of which a write had a part only
  Named waits{*this, "overlay_waits"};              // for others that change the same block
  Named commits{*this, "overlay_commits"};
  Named map_pages{*this, "overlay_map_pages"};  // written in these
};

}  // namespace ringside
