// The file that `ringside run --poll-trace` writes, for benchmarks/poll_simulator: text, one line a
// wait, thread by thread, a thread's newest waits from the oldest on.
//
//   # ringside poll trace 1
//   # thread,start_ns,waiting,waited_ns,slept,ready
//   io0,1000200,in-flight,8700,0,1
//   io0,1009900,idle,51000,1,2
//
// start_ns: CLOCK_MONOTONIC. waiting: idle or in-flight. slept: 1 if what came ended a sleep, which
// makes waited_ns an estimate; else it is right to some hundred ns. ready: hexadecimal, as
// WaitOutcome::ready.
#pragma once

#include <ostream>
#include <vector>

#include "command/trace_file.h"
#include "poll/io_thread_statistics.h"
#include "ringside/statistics.h"

namespace ringside {

inline constexpr TraceFormat kWaitFile = {.option = "--poll-trace",
                                          .beginning = "# ringside poll trace 1\n"};

// The stream tells whether it worked.
void WriteWaits(const std::vector<IoThreadWaits>& threads, std::ostream& file);

}  // namespace ringside
