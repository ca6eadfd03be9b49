// A message sent whole, by a test that has nothing else to do meanwhile.
#pragma once

#include <limits>
#include <poll.h>
#include <utility>

#include "base/status.h"
#include "tests/support/wait.h"
#include "vfio/vfio_user_message.h"

namespace ringside::testing {

inline absl::Status SendVfioUserMessage(int socket, const VfioUserHeader& header,
                                        VfioUserPayload payload, std::span<const int> fds) {
  VfioUserWriter writer;
  RINGSIDE_RETURN_IF_ERROR(
      writer.Add(header, std::move(payload), fds, std::numeric_limits<int64_t>::max()));
  while (true) {
    RINGSIDE_RETURN_IF_ERROR(writer.Send(socket));
    if (writer.empty()) return absl::OkStatus();
    if (!WaitForFd(socket, POLLOUT)) return absl::DeadlineExceededError("nobody reads it");
  }
}

}  // namespace ringside::testing
