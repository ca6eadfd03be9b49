// The program's end of a vsock's socket: what a machine's own answers is in devices/vsock_hub.h.
//
// Threads: any. Errors: as ConnectToGuest (ringside/vsock.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ringside {

// A connection to this port of the guest. Its writes wait no longer than the limit, either.
absl::StatusOr<UniqueFd> ConnectVsock(const std::string& path, uint32_t port, absl::Duration limit);
// The same on a stream socket that is connected to the vsock's, which errors call `name`. Reads no
// byte that is the guest's.
absl::Status AskForGuestPort(int fd, const std::string& name, uint32_t port, absl::Duration limit);

}  // namespace ringside
