// The two rings of a queue, as guest and I/O thread share them: indices modulo 2^16, and which
// request is where. A store is seen by the other side at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ringside {

struct Io {
  size_t job = 0;
  int64_t completed_ns = 0;  // by the device
};
using IoId = size_t;
inline constexpr int64_t kNew = -1;  // the completion of a request that was never submitted

struct Ring {
  explicit Ring(uint16_t first) : used(first), used_event(first), consumed(first), taken(first) {}

  std::vector<Io> ios;
  std::deque<IoId> available;  // not taken yet
  std::deque<IoId> answered;   // in the used ring, not consumed yet
  uint16_t used;               // what the I/O thread shows
  uint16_t used_event;         // the guest's wish
  uint16_t consumed;           // the guest's own
  uint16_t taken;              // the I/O thread's own
};

}  // namespace ringside
