// Runs the jobs of net_job.h on the first network and prints a line of JSON for each
// (net_result.h).

#ifndef RINGSIDE_TESTS_GUEST_MEASURE_NET_H_
#define RINGSIDE_TESTS_GUEST_MEASURE_NET_H_

#include "command_line.h"

namespace guest {

void MeasureNet(const CommandLine& command_line);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MEASURE_NET_H_
