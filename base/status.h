// Errors as absl::Status: one line that names what was tried, on what, and what to do about it.
//
// The code tells the caller whose fault it is. InvalidArgument, NotFound, PermissionDenied and
// FailedPrecondition are the user's to mend (the command exits with 2); any other is a failure at
// run time (exit 1).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

namespace ringside {

// "<what>: <text of errno>", then "; <remedy>" if there is one.
absl::Status ErrnoError(int error, std::string_view what, std::string_view remedy = {});

template <typename... Args>
absl::Status BadInput(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// Debian's Abseil has a string_view of its own; the rest of the project speaks std's.
inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// Says in front of an error what it is about: a device, a network.
inline absl::Status Of(std::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrFormat("%s: %s", name, Message(status)));
}

}  // namespace ringside

#define RINGSIDE_CONCAT_(a, b) a##b
#define RINGSIDE_CONCAT(a, b) RINGSIDE_CONCAT_(a, b)

#define RINGSIDE_RETURN_IF_ERROR(expression)                                \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define RINGSIDE_ASSIGN_OR_RETURN(target, expression) \
  RINGSIDE_ASSIGN_OR_RETURN_(RINGSIDE_CONCAT(status_or_, __LINE__), target, expression)
#define RINGSIDE_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return result.status();                    \
  target = *std::move(result)
