// What it means that a file could not be opened, and whose fault it is.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace ringside {

// What a user can do about a file that is not there, may not be opened, or is in use. Without
// `busy`, EBUSY is an ordinary failure.
struct OpenRemedies {
  std::string_view missing;
  std::string_view forbidden;
  std::string_view busy = {};
};

// "<what>: <text of errno>; <remedy>". NotFound, PermissionDenied or FailedPrecondition where there
// is a remedy; else as ErrnoError.
absl::Status OpenError(int error, std::string_view what, const OpenRemedies& remedies);

}  // namespace ringside
