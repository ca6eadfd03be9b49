// The lock that keeps a disk's users apart: any number who only read, or one who writes; and
// leases, which tell of users who do not ask for locks.
//
// Threads: any. The kernel gives a lock back when its descriptor is closed everywhere, however the
// process ends. Spec: fcntl(2) under open file description locks.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ringside {

// Tries for 1 s. `name`: in messages, "disk 'FILE'". FailedPrecondition if it is in use.
absl::Status LockFile(int fd, bool read_only, const std::string& name);

// For what a ring may hold beyond the end of its user.
void UnlockFile(int fd);

// Both try for 1 s to have a lease of the file, which is given back at once: held, it would send
// the process signals. So this is a look, at a moment, at users of any kind: whoever opens the file
// later goes unseen. FailedPrecondition, with who it is if /proc tells: somebody has it open. Where
// leases are not to be had (another user's file, a block device, a file system without) all is
// fine. `name`: in messages, "base 'FILE'".

// Anybody, this process included, who may write the file. `fd` is open for reading alone.
absl::Status RefuseWriters(int fd, const std::string& name);
// Anybody but `fd`.
absl::Status RefuseOthers(int fd, const std::string& name);

}  // namespace ringside
