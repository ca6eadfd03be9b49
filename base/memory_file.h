// Memory that other processes can be given by its descriptor, and whose length none of them can
// change: an access behind a shortened end would kill whoever makes it. Holes can be punched.
//
// Spec: memfd_create(2); fcntl(2), "File Sealing".
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

enum class MemoryFileUse {
  kStaysWritable,  // for good: nobody who has the descriptor can seal it against writing
  kMayBeFrozen,    // by F_SEAL_WRITE
};

enum class MemoryFilePages {
  kSmall,
  k2M,  // of those that the host has set aside; its size is a multiple of theirs
};

// `name` is what /proc shows. Zeroes, which take no memory until touched, nor is any reserved
// before somebody maps them. The error is the system's, with what was being done.
absl::StatusOr<UniqueFd> CreateMemoryFile(const char* name, uint64_t size,
                                          MemoryFileUse use = MemoryFileUse::kStaysWritable,
                                          MemoryFilePages pages = MemoryFilePages::kSmall);

}  // namespace ringside
