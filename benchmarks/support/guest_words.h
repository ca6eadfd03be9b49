// What the guest's code needs of its machine (console.h and clock.h of tests/guest), for programs
// of this host that read the guest's words and print its results: the console is stdout.
#pragma once

#include <string>

namespace ringside {

// Puts what has been printed into stdout.
void FlushGuestConsole();

}  // namespace ringside
