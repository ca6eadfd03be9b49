#include "base/open_error.h"

#include <cerrno>

#include "base/status.h"

namespace ringside {

absl::Status OpenError(int error, std::string_view what, const OpenRemedies& remedies) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(ErrnoError(error, what, remedies.missing).message());
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(ErrnoError(error, what, remedies.forbidden).message());
    case EBUSY:
      if (remedies.busy.empty()) break;
      return absl::FailedPreconditionError(ErrnoError(error, what, remedies.busy).message());
    default:
      break;
  }
  return ErrnoError(error, what);
}

}  // namespace ringside
