// poll() for one descriptor, until a moment.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <poll.h>

#include "base/sync.h"

namespace ringside {

// As poll(): 1, 0 if it had none of the events by then, below 0 with errno. What is there is seen
// after the moment, too. Goes on after signals, which move it no further.
inline int PollUntil(pollfd& watched, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready =
        poll(&watched, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX)));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return 0;
  }
}

inline int PollUntil(int fd, short events, Deadline deadline) {
  pollfd watched = {.fd = fd, .events = events, .revents = 0};
  return PollUntil(watched, deadline);
}

}  // namespace ringside
