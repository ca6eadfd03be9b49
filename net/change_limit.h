// How often a guest may have the host change a network: each change takes a lock that all changes
// of networks on the host share. A burst, as of guests that are restarted, then some per second.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringside {

class ChangeLimit {
 public:
  // Four drivers one after the other that use eight queue pairs of a tap, which are detached and
  // attached one by one.
  static constexpr int kBurst = 64;
  static constexpr int64_t kNsPerChange = 100'000'000;

  // How long so many changes, kBurst at most, have to wait; 0: they may be made now, and count.
  int64_t Ask(int64_t now_ns, int changes) {
    const int64_t paid_ns = std::max(paid_ns_, now_ns - kBurst * kNsPerChange);
    const int64_t paid_then_ns = paid_ns + changes * kNsPerChange;
    if (paid_then_ns > now_ns) return paid_then_ns - now_ns;
    paid_ns_ = paid_then_ns;
    return 0;
  }

 private:
  int64_t paid_ns_ = INT64_MIN / 2;  // until when all changes are paid for
};

}  // namespace ringside
