// The application processors: brought into ring 3 one by one, each on a stack of its own with the
// tables of processor 0, and given functions to run. Between two functions they spin on `pause`, so
// that nothing has to wake them: start them only for what needs them.
//
// A processor is known by its local APIC ID, of which the first ones are taken to be 0, 1, 2 and so
// on. All functions here are for processor 0.

#ifndef RINGSIDE_TESTS_GUEST_PROCESSORS_H_
#define RINGSIDE_TESTS_GUEST_PROCESSORS_H_

#include <cstdint>

#include "deadline.h"

namespace guest {

constexpr uint32_t kMaxProcessors = 16;  // boot.S has as many task descriptors

// Makes processors 0 to `count` - 1 run; false, after a FAIL line, if one does not come within
// seconds. Those that run already are left alone.
bool StartProcessors(uint32_t count);

// Processor 0 among them.
uint32_t RunningProcessors();

// The one that serves item `i`, a queue say: processor i if it runs, else 0.
inline uint32_t ProcessorOf(uint32_t i) {
  return i < RunningProcessors() ? i : 0;
}

// Has the processor call `function`, in ring 3 with interrupts on. It must be one that runs, not 0,
// and done with what it was given before.
void RunOnProcessor(uint32_t processor, void (*function)(void*), void* argument);

// Waits until no processor has anything to run; false, after a FAIL line, if that takes longer than
// `ticks` of the time stamp counter.
bool WaitForProcessors(uint64_t ticks = kAllPatience);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_PROCESSORS_H_
