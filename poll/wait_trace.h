// The newest waits of an I/O thread, for a simulator that plays them to other policies.
//
// Threads: the I/O thread's own.
#pragma once

#include "base/newest.h"
#include "poll/policy.h"

namespace ringside {

using WaitTrace = Newest<WaitOutcome>;
inline constexpr size_t kTracedWaits = 1 << 18;  // 10 MiB

}  // namespace ringside
