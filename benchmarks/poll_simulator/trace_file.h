// Reads what `ringside run --poll-trace FILE` writes: the waits of its I/O threads, as text.
//
//   # ringside poll trace 1
//   # thread,start_ns,waiting,waited_ns,slept,ready
//   io0,1000,idle,52000,1,2
//   io0,61000,in-flight,9000,0,1
//
// The first line is the format and its version; others that begin with # are for people. `thread`
// is an I/O thread's name, `start_ns` CLOCK_MONOTONIC, `slept` 1 if what came ended a sleep,
// `ready` in hexadecimal as in WaitOutcome. A thread's waits stand in their order and do not
// overlap; what lies between two was work, or the time that waking took.
//
// Errors: InvalidArgument, whatever the file holds; it names the line.
#pragma once

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "benchmarks/poll_simulator/trace.h"

namespace ringside {

// One trace a thread, in the order in which they appear.
absl::StatusOr<Family> ReadPollTrace(const std::string& path);

// `path` is for errors.
absl::StatusOr<Family> ReadPollTrace(std::istream& file, const std::string& path);

}  // namespace ringside
