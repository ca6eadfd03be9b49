// The interrupt descriptor table, exceptions, and calls into ring 0.
//
// Interrupts are on from the first ring-3 instruction to the last. Handlers run in ring 3, on the
// interrupted stack, through trap gates: ring 3 cannot switch interrupts on again (iretq leaves the
// flag alone above IOPL, SDM 6.12.1), so a gate that switched them off would deliver only once. A
// handler may therefore be interrupted by another vector.

#ifndef RINGSIDE_TESTS_GUEST_INTERRUPTS_H_
#define RINGSIDE_TESTS_GUEST_INTERRUPTS_H_

#include <cstdint>

namespace guest {

// What the CPU pushes (SDM 6.14.2).
struct InterruptFrame {
  uint64_t rip, cs, rflags, rsp, ss;
};

// A function with __attribute__((interrupt)).
using InterruptHandler = void (*)(InterruptFrame*);

// Fills the table that boot.S has loaded: every exception prints a FAIL line and ends the guest,
// except the breakpoint, which RunInRing0 uses.
void InitInterrupts();

void SetInterruptHandler(uint8_t vector, InterruptHandler handler);

// Runs `function` at CPL 0, with interrupts off, on a 4 KiB stack. Keep it short: ring 0 may be
// slow.
void RunInRing0(void (*function)());

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_INTERRUPTS_H_
