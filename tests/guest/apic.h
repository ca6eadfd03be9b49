// Local APIC (xAPIC mode, at 0xfee00000) and I/O APIC (at 0xfec00000), used from ring 3 by MMIO.

#ifndef RINGSIDE_TESTS_GUEST_APIC_H_
#define RINGSIDE_TESTS_GUEST_APIC_H_

#include <cstdint>

#include "interrupts.h"

namespace guest {

// Software-enables this CPU's local APIC, which must come before any interrupt.
void EnableLocalApic();

// Tells the local APIC that the handler of the current interrupt is done.
void EndOfInterrupt();

// Routes an I/O APIC pin, edge-triggered and active high, to `handler` at `vector` on this CPU.
void RouteInterrupt(uint8_t pin, uint8_t vector, InterruptHandler handler);

// Starts the application processors with APIC IDs 1 to `count` by INIT and start-up IPIs, and
// returns how many of them have counted themselves, after all have or some seconds have gone by.
// They stay halted in real mode.
uint32_t StartApplicationProcessors(uint32_t count);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_APIC_H_
