// The file that `ringside run --signal-trace` writes, for benchmarks/signal_simulator: text, one
// line an event, queue by queue, a queue's newest events from the oldest on.
//
//   # ringside signal trace 1
//   # queue,ns,event,index
//   disk0.0,1000200,took,17
//   disk0.0,1011900,shown,17
//
// queue: the device's id and the queue's number. ns: CLOCK_MONOTONIC. event: took (requests before
// index were taken), shown (so many are answered in the used ring), held (the interrupt for those
// is wanted, and was put off), raised (it was sent), consumed (the guest wants none for those).
// index: that of the ring, modulo 2^16.
#pragma once

#include <ostream>
#include <vector>

#include "command/trace_file.h"
#include "devices/signal_records.h"

namespace ringside {

inline constexpr TraceFormat kSignalFile = {.option = "--signal-trace",
                                            .beginning = "# ringside signal trace 1\n"};

// The stream tells whether it worked.
void WriteSignals(const std::vector<QueueSignals>& queues, std::ostream& file);

}  // namespace ringside
