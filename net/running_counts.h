// What an interface has carried since a network began to use it, of counts that the host keeps and
// that are read now and then. It never goes back: the counts of an interface that is gone, or that
// was made anew under its name, are lower ones, and say nothing.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

#include "net/host_network.h"

namespace ringside {

class RunningCounts {
 public:
  void Begin(const NetCounts& now) { first_ = now; }
  void See(const NetCounts& now) {
    for (uint64_t NetCounts::* const count : {&NetCounts::frames_in, &NetCounts::bytes_in,
                                              &NetCounts::frames_out, &NetCounts::bytes_out}) {
      if (now.*count > first_.*count)
        since_.*count = std::max(since_.*count, now.*count - first_.*count);
    }
  }
  const NetCounts& since() const { return since_; }

 private:
  NetCounts first_, since_;
};

}  // namespace ringside
