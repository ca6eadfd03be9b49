// An error of the system's that is the user's to mend, whatever it is: of a file that an option
// names, say.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"

namespace ringside {

// As ErrnoError, but InvalidArgument.
inline absl::Status BadInputErrno(int error, std::string_view what, std::string_view remedy = {}) {
  return absl::InvalidArgumentError(ErrnoError(error, what, remedy).message());
}

}  // namespace ringside
