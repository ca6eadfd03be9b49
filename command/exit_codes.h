// The exit codes of the ringside command, as documented in --help and docs/running.md.
#pragma once

#include "absl/status/status.h"
#include "base/status.h"
#include "ringside/log.h"
#include "ringside/machine_end.h"

namespace ringside {

enum ExitCode : int {
  kExitOk = 0,        // the guest powered off, or the user left by the detach key
  kExitFailure = 1,   // the host failed at run time
  kExitBadInput = 2,  // options, files or the host's set-up need mending
  kExitReset = 3,     // the guest asked for a reboot
  kExitCrash = 4,     // the guest crashed
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kExitBadInput;
    default:
      return kExitFailure;
  }
}

inline ExitCode ExitCodeOf(EndKind kind) {
  switch (kind) {
    case EndKind::kPowerOff:
    case EndKind::kStopped:
      return kExitOk;
    case EndKind::kReset:
      return kExitReset;
    case EndKind::kCrash:
      return kExitCrash;
    case EndKind::kFailure:
      return kExitFailure;
  }
  return kExitFailure;
}

// Of a command that ends so. An error is logged.
inline int Finish(const absl::Status& status, LogSink& log) {
  if (!status.ok()) log.Log(Severity::kError, Message(status));
  return ExitCodeOf(status);
}

}  // namespace ringside
