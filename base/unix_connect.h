// A connection to the Unix socket at a path (base/unix_address.h), made within a limit.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ringside {

// A stream that blocks, and whose writes wait no longer than the limit, either: a server whose
// backlog is full would hold up its client without end. `refused` makes the error of what connect()
// says, since what to do about it is the caller's to know.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, absl::Duration limit,
                                     const std::function<absl::Status(int error)>& refused);

}  // namespace ringside
