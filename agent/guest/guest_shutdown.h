// Ending the guest without damage to what it has open.
#pragma once

#include "agent/agent_message.h"

namespace ringside {

// For PID 1: asks all processes to end, kills those that have not within five seconds, writes
// everything to the disks, and has the kernel power off or reboot. Does not return.
[[noreturn]] void ShutDownAsInit(ShutDownHow how);
// For any other process: runs the guest's own `poweroff` or `reboot`. False if that cannot be
// started.
bool AskInitToShutDown(ShutDownHow how);

}  // namespace ringside
