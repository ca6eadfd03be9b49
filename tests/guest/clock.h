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
inline uint64_t TicksToNs(uint64_t ticks) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  return ticks / TicksPerMs() * kNsPerMs + ticks % TicksPerMs() * kNsPerMs / TicksPerMs();
}
inline uint64_t NsToTicks(uint64_t ns) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  return ns / kNsPerMs * TicksPerMs() + ns % kNsPerMs * TicksPerMs() / kNsPerMs;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_CLOCK_H_
