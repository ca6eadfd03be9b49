// Reads what `ringside run --poll-trace FILE` writes: the waits of its I/O threads, as text.
//
//   # ringside poll trace 1
//   thread,start_ns,waiting,waited_ns,slept,ready
//   0,1000,idle,52000,1,2
//   0,61000,in-flight,9000,0,1
//
// The first line is the format and its version; the second, with the columns' names, may be
// missing. `thread` numbers the I/O threads from 0, `start_ns` is CLOCK_MONOTONIC, `slept` 1 if the
// thread had gone to sleep when the event came, `ready` as in WaitOutcome, in decimal. A thread's
// waits stand in their order and do not overlap; what lies between two was work, or the time that
// waking took.
//
// Errors: InvalidArgument, whatever the file holds; it names the line.
#pragma once

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "benchmarks/poll_simulator/trace.h"

namespace ringside {

// One trace a thread, by their numbers.
absl::StatusOr<Family> ReadPollTrace(const std::string& path);

// `path` is for errors.
absl::StatusOr<Family> ReadPollTrace(std::istream& file, const std::string& path);

}  // namespace ringside
