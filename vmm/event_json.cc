#include "vmm/event_json.h"

#include <string>

#include "absl/time/time.h"

namespace ringside {

const char* EventName(EventKind kind) {
  switch (kind) {
    case EventKind::kStarted:
      return "started";
    case EventKind::kConsoleSpoke:
      return "console-spoke";
    case EventKind::kPaused:
      return "paused";
    case EventKind::kResumed:
      return "resumed";
    case EventKind::kDiskError:
      return "disk-error";
    case EventKind::kDiskStopped:
      return "disk-stopped";
    case EventKind::kNeedsReset:
      return "needs-reset";
    case EventKind::kPanicked:
      return "panicked";
    case EventKind::kAgentUp:
      return "agent-up";
    case EventKind::kAgentLost:
      return "agent-lost";
    case EventKind::kPowerOffAsked:
      return "power-off-asked";
    case EventKind::kEnded:
      return "ended";
  }
  return "unknown";
}

// RFC 3339 section 5.6, with all digits that the clock has.
Json EventJson(const MachineEvent& event) {
  Json json = {{"event", EventName(event.kind)},
               {"sequence", event.sequence},
               {"time", std::string(absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", event.time,
                                                     absl::UTCTimeZone()))},
               {"monotonic_ns", event.monotonic_ns}};
  if (!event.device.empty()) json["device"] = event.device;
  if (!event.detail.empty()) json["detail"] = event.detail;
  json["count"] = event.count;
  return json;
}

}  // namespace ringside
