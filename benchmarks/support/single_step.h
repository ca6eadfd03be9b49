// Counts the instructions of the calling thread where the processor has no counters to offer: by a
// trap behind each of them. Exact, the same on every machine, and thousands of times slower, so for
// a handful of operations only.
//
// Counted is user space. An instruction with a repeat prefix is one, as in the processor's own
// counters; so is a system call together with the instruction behind it.
//
// Threads: Start and Stop on the thread that is measured; several may count at the same time.
// Limits: takes SIGTRAP from the process, so no debugger's breakpoints; and what blocks signals, as
// the making of a thread does, ends the process.
// Source: Intel SDM volume 3, section 17.3.1.4 (the trap flag).
#pragma once

#include <cstdint>

namespace ringside::benchmarks {

void StartSingleStep();
// Instructions since.
uint64_t StopSingleStep();

}  // namespace ringside::benchmarks
