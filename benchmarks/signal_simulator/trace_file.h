// Traces of a queue's signals as text, of the simulator's own runs or of a machine's.
//
//   # ringside signal trace 1
//   # queue,ns,event,index
//   disk0.0,1000200,took,17
//   disk0.0,1011900,shown,17
//
// The first line is the format and its version; others that begin with # are for people. `ns` is of
// a clock that does not run backwards, `event` one of kSignalEventNames, `index` modulo 2^16. The
// lines of a queue stand in the order of their happening.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/signal_simulator/signal_trace.h"

namespace ringside {

// So many lines are read; a file that has more is refused.
inline constexpr size_t kMostSignalEvents = 1'000'000;

std::string SignalTraceText(const SignalTrace& trace);

// One trace a queue, in the order in which they appear. Errors: InvalidArgument, whatever the file
// holds; it names the line.
absl::StatusOr<std::vector<SignalTrace>> ReadSignalTraces(const std::string& path);
// `path` is for errors.
absl::StatusOr<std::vector<SignalTrace>> ReadSignalTraces(std::istream& file,
                                                          const std::string& path);

}  // namespace ringside
