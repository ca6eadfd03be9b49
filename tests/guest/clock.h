// Time: the time stamp counter, and its rate as KVM's clock tells it.
//
// Source: Linux, Documentation/virt/kvm/x86/msr.rst (MSR_KVM_SYSTEM_TIME_NEW) and cpuid.rst.

#ifndef RINGSIDE_TESTS_GUEST_CLOCK_H_
#define RINGSIDE_TESTS_GUEST_CLOCK_H_

#include <cstdint>

namespace guest {

// Asks KVM once; false, after a FAIL line, if it does not say.
bool InitClock();

// The counter's ticks in a millisecond, 0 before InitClock.
uint64_t TicksPerMs();

// Of spans up to hours, rounded down.
uint64_t TicksToNs(uint64_t ticks);
uint64_t NsToTicks(uint64_t ns);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_CLOCK_H_
