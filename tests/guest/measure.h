// Runs the jobs of job.h on the first disk and prints a line of JSON for each: what was done, how
// long requests took, and what they cost in kicks and interrupts. All numbers are integers, times
// in nanoseconds. "histogram" lists [least latency of the bucket, requests]; "late" counts how
// often an open loop had as many requests in flight as it may. A job that cannot be run has a
// member "error" instead.

#ifndef RINGSIDE_TESTS_GUEST_MEASURE_H_
#define RINGSIDE_TESTS_GUEST_MEASURE_H_

#include "command_line.h"

namespace guest {

void Measure(const CommandLine& command_line);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MEASURE_H_
