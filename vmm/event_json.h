// An event as JSON, the same in a file and in a stream.
//
//   {"event": "disk-error", "sequence": 3, "time": "2026-11-23T20:15:03.000000001Z",
//    "monotonic_ns": 5, "device": "disk0", "detail": "a read failed: Input/output error", "count":
//    7}
//
// `device` and `detail` are there where they say something. All strings are UTF-8.
#pragma once

#include "ringside/event.h"
#include "vmm/option_type.h"

namespace ringside {

// "started", "console-spoke", "paused", "resumed", "disk-error", "disk-stopped", "needs-reset",
// "panicked", "power-off-asked", "agent-up", "agent-lost", "ended".
const char* EventName(EventKind kind);
Json EventJson(const MachineEvent& event);

}  // namespace ringside
