// What tells a guest that it has become a copy of another machine, so that it does not give out
// that one's random numbers: an identifier of 16 random bytes (the VM Generation ID), and a page
// with counters (VMClock), both in its memory where the DSDT says. A guest has them from its first
// instruction on, as it looks for them but once.
//
// Threads: none may run the guest meanwhile, so nothing has to be seen in any order.
// Spec: Microsoft, "Virtual Machine Generation ID"; VMClock as linux/vmclock-abi.h has it.
#pragma once

#include "absl/status/status.h"
#include "devices/guest_memory.h"

namespace ringside {

// In the memory of a new machine.
absl::Status WriteGeneration(const GuestMemory& memory);

// In that of a copy, which is to be interrupted at kGenerationPin then. What a guest has made of
// the page before is its own affair.
absl::Status RenewGeneration(const GuestMemory& memory);

}  // namespace ringside
