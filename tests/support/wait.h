// Bounded waits. The limit is no expectation about speed: it ends a test that would hang.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/sync.h"

namespace ringside::testing {

inline constexpr absl::Duration kWaitLimit = absl::Seconds(30);

// Stays on the processor, for races that sleeping would hide.
template <typename Condition>
bool SpinUntil(Condition condition) {
  const absl::Time deadline = absl::Now() + kWaitLimit;
  for (unsigned spins = 1; !condition(); ++spins) {
    if (spins % 4096 != 0) continue;
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Whether `events` came up on the descriptor.
inline bool WaitForFd(int fd, short events, absl::Duration limit = kWaitLimit) {
  pollfd watched{.fd = fd, .events = events, .revents = 0};
  return ::poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) == 1;
}

// An Event whose Wait has a limit.
class BoundedEvent : public Event {
 public:
  bool Wait() const { return WaitFor(kWaitLimit); }
  // For what lives on the caller's stack: giving up would pull it from under the other thread.
  void WaitOrAbort() const {
    if (Wait()) return;
    std::fputs("a thread never answered\n", stderr);
    std::abort();
  }
};

}  // namespace ringside::testing
