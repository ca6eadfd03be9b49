// Keeps two networks of one process off the same tap: they would take each other's frames, and for
// the kernel each is only one more queue, or the same one.
//
// Threads: any. Another process's networks are not seen.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

// The tap that `queue` is one of is the caller's for as long as the descriptor which this returns
// stays open; one that is not valid where this cannot be told. FailedPrecondition: another network
// of this process has it.
absl::StatusOr<UniqueFd> ClaimTap(int queue, const std::string& name);

}  // namespace ringside
