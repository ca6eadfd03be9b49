// poll() for one descriptor, within a limit.
#pragma once

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <poll.h>

#include "absl/time/time.h"

namespace ringside {

// As poll(): 1, 0 if it had none of the events by then, below 0 with errno. Goes on after signals.
inline int PollWithin(int fd, short events, absl::Duration limit) {
  pollfd watched = {.fd = fd, .events = events, .revents = 0};
  const int64_t most = std::clamp<int64_t>(absl::ToInt64Milliseconds(limit), 1, INT_MAX);
  int ready;
  do {
    ready = poll(&watched, 1, static_cast<int>(most));
  } while (ready < 0 && errno == EINTR);
  return ready;
}

}  // namespace ringside
