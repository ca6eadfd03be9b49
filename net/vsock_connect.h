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

// A connection to this port of the guest, with no byte read that is the guest's. Its writes wait no
// longer than the limit, either.
absl::StatusOr<UniqueFd> ConnectVsock(const std::string& path, uint32_t port, absl::Duration limit);

}  // namespace ringside
