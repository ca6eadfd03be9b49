// Runs the jobs of vsock_job.h on the first vsock and prints a line of JSON for each.

#ifndef RINGSIDE_TESTS_GUEST_MEASURE_VSOCK_H_
#define RINGSIDE_TESTS_GUEST_MEASURE_VSOCK_H_

#include "command_line.h"

namespace guest {

void MeasureVsock(const CommandLine& command_line);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MEASURE_VSOCK_H_
