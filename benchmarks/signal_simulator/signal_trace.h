// What happened on a queue that has to do with signals, in the order of its happening.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside {

enum class SignalEventKind : uint8_t {
  kTook,      // requests before `index` were taken
  kShown,     // used entries before `index` are shown
  kRaised,    // the guest was sent an interrupt for those
  kHeld,      // it wants one for those, and that was put off
  kConsumed,  // the guest was seen to have consumed those before `index`
};
inline constexpr const char* kSignalEventNames[] = {"took", "shown", "raised", "held", "consumed"};

struct SignalEvent {
  int64_t ns = 0;
  SignalEventKind kind = SignalEventKind::kTook;
  uint16_t index = 0;  // modulo 2^16
  bool operator==(const SignalEvent&) const = default;
};

struct SignalTrace {
  std::string queue;
  std::vector<SignalEvent> events;
};

}  // namespace ringside
