// A tap of the host for programs that measure beside a guest: opened by name, which someone else
// has made and configured. Never blocks.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

// Frames as they are, without any header. The tap is busy while it is open.
absl::StatusOr<UniqueFd> OpenBareTap(const std::string& name);

// The number of an interface of this network namespace.
absl::StatusOr<int> InterfaceIndex(const std::string& name);

}  // namespace ringside
