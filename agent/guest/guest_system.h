// What the agent does to the guest's kernel: its clock, its random numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "agent/agent_fault.h"

namespace ringside {

// CLOCK_REALTIME, in nanoseconds since 1970.
AgentFault SetClock(int64_t ns);
// Mixes the bytes into the pool, counts them as random, and makes the generator take its key from
// the pool anew: clones of one snapshot would otherwise go on with the same numbers.
AgentFault AddEntropy(std::string_view bytes);

int64_t GuestMonotonicNs();
// One line to stderr: the console, for PID 1.
void Say(std::string_view what, std::string_view more = {});

}  // namespace ringside
