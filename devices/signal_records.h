// What happened on a queue that has to do with its interrupts: the newest of it, for
// `ringside run --signal-trace` and the simulator that reads such files.
//
// Threads: the queue's I/O thread records; who reads does so on that thread, or while the queue is
// down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/newest.h"

namespace ringside {

enum class SignalStep : uint8_t {
  kTook,      // requests before the index were taken
  kShown,     // used entries before the index are shown
  kRaised,    // the guest was sent an interrupt for those
  kHeld,      // it wants one for those, and that was put off
  kConsumed,  // it wants none for those: it finds them by itself, or has
};
// As written in files.
const char* SignalStepName(SignalStep step);

struct SignalRecord {
  int64_t ns = 0;  // CLOCK_MONOTONIC
  SignalStep step = SignalStep::kTook;
  uint16_t index = 0;  // of the available ring for kTook, else of the used ring
};

using SignalRecords = Newest<SignalRecord>;
inline constexpr size_t kSignalRecords = 1 << 16;  // of a queue; 1 MiB

// A copy.
struct QueueSignals {
  std::string device;  // its id
  uint16_t queue = 0;
  uint64_t overwritten = 0;           // older records that were not kept
  std::vector<SignalRecord> records;  // oldest first
};

}  // namespace ringside
