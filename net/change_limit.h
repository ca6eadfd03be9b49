// How often a guest may have the host change a network: each change takes a lock that all changes
// of networks on the host share. A burst, as of guests that are restarted, then a few per second.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringside {

class ChangeLimit {
 public:
  static constexpr int64_t kBurst = 16;
  static constexpr int64_t kNsPerChange = 250'000'000;

  // Whether another one may be made now; then it counts.
  bool Allows(int64_t now_ns) {
    const int64_t from = std::max(paid_ns_, now_ns - (kBurst - 1) * kNsPerChange);
    if (from > now_ns) return false;
    paid_ns_ = from + kNsPerChange;
    return true;
  }

 private:
  int64_t paid_ns_ = INT64_MIN / 2;  // until when all changes are paid for
};

}  // namespace ringside
