// Local APIC (xAPIC mode, at 0xfee00000) and I/O APIC (at 0xfec00000), used from ring 3 by MMIO.

#ifndef RINGSIDE_TESTS_GUEST_APIC_H_
#define RINGSIDE_TESTS_GUEST_APIC_H_

#include <cstdint>

#include "interrupts.h"

namespace guest {

// Software-enables this CPU's local APIC, which must come before any interrupt.
void EnableLocalApic();

// Whether ordinary interrupts reach this CPU. Those that come meanwhile are delivered afterwards.
enum class Interrupts { kHeldBack, kTaken };
void SetInterrupts(Interrupts wanted);

// Tells the local APIC that the handler of the current interrupt is done.
void EndOfInterrupt();

// Routes an I/O APIC pin, edge-triggered and active high, to `handler` at `vector` on this CPU.
void RouteInterrupt(uint8_t pin, uint8_t vector, InterruptHandler handler);

// This CPU's APIC ID.
uint32_t ApicId();

// Interrupts between processors, to the one with this APIC ID: an ordinary one, INIT, and start-up
// in real mode at `address`, the start of a page below 1 MiB (SDM 10.6.1).
void SendInterrupt(uint32_t apic_id, uint8_t vector);
void SendInit(uint32_t apic_id);
void SendStartUp(uint32_t apic_id, uint64_t address);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_APIC_H_
