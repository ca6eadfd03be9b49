// Which of the host's CPUs a thread may run on.
//
// Errors: InvalidArgument, in one line that names the CPU, for what cannot be.
#pragma once

#include <span>

#include "absl/status/status.h"

namespace ringside {

// Whether this thread, and so those it starts, may run on each of them. None twice.
absl::Status CheckHostCpus(std::span<const int> cpus);
// Keeps this thread on them; on none: where it may run already.
absl::Status PinThisThread(std::span<const int> cpus);

}  // namespace ringside
