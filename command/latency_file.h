// The file that `ringside run --trace-latency` writes and `ringside report` reads: lines of JSON.
//
//   {"format":"ringside latency trace","version":2,"queues":1,"records":2,"columns":[...]}
//   {"device":"disk0","path":"a.img","queue":0,"records":2,"overwritten":0}     one per queue
//   [0,"read",4096,1000,1300,1900,9000,9400,9900]                                 one a record
//   [0,"flush",0,2000,2100,2200,9000,9400,0]
//
// A record's columns: which of the queues above; the kind; bytes; then CLOCK_MONOTONIC in ns at
// each point of devices/latency_trace.h, an interrupt of 0 being none. A queue's records stand in
// the order in which they were answered.
//
// Errors of reading: InvalidArgument, whatever the file holds.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "command/trace_file.h"
#include "ringside/statistics.h"

namespace ringside {

inline constexpr TraceFormat kLatencyFile = {.option = "--trace-latency",
                                             .beginning = R"({"format":"ringside latency trace")"};

// The stream tells whether it worked.
void WriteLatencies(const std::vector<QueueLatencies>& queues, std::ostream& file);
absl::StatusOr<std::vector<QueueLatencies>> ReadLatencies(const std::string& path);

}  // namespace ringside
