// What this process has used of its host so far: all of its machines, and the embedder's own.
//
// Threads: any. Errors: what /proc does not tell is 0.
#pragma once

#include <cstdint>

namespace ringside {

struct ProcessUsage {
  double cpu_seconds = 0;       // of all threads, in user mode and in the kernel
  uint64_t resident_bytes = 0;  // guest memory that was touched included
  uint64_t open_descriptors = 0;
  uint64_t threads = 0;
};

// Some system calls and three files of /proc: for once a second at most.
ProcessUsage ReadProcessUsage();

}  // namespace ringside
