// The lock that keeps a disk's users apart: any number who only read, or one who writes.
//
// Threads: any. The kernel gives it back when its descriptor is closed everywhere, however the
// process ends. Spec: fcntl(2) under open file description locks.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ringside {

// Tries for 200 ms. `name`: in messages, "disk 'FILE'". FailedPrecondition if it is in use.
absl::Status LockFile(int fd, bool read_only, const std::string& name);

// For what a ring may hold beyond the end of its user.
void UnlockFile(int fd);

}  // namespace ringside
