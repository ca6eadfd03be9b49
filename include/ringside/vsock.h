// A program's way into a guest that has a vsock (VsockConfig, docs/vsock.md), from the process of
// its machine or from any other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ringside/export.h"

namespace ringside {

// Connects to a port of the guest, through the Unix socket of its vsock, VsockConfig::path, and
// returns a stream socket that blocks. It is the caller's. shutdown() ends one direction, as of a
// TCP connection.
//
// Threads: any. Waits for the guest's answer, for `limit`. Errors: NotFound and PermissionDenied
// are about the path; InvalidArgument: another socket is there; Unavailable: the machine is over,
// nobody listens on the port, or the guest was silent.
RINGSIDE_EXPORT absl::StatusOr<int> ConnectToGuest(const std::string& vsock, uint32_t port,
                                                   absl::Duration limit = absl::Seconds(30));

}  // namespace ringside
