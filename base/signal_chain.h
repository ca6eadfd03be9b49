// For handlers of signals that do their part, and leave the rest to whoever handled them before.
#pragma once

#include <csignal>

namespace ringside {

// In a handler, with its arguments: does what would have been done with the signal were `before`
// still in place, and so may end the process. Async-signal-safe (signal-safety(7)).
void HandOn(const struct sigaction& before, int signal, siginfo_t* info, void* registers);

}  // namespace ringside
