// Starts a command in a session of its own, with pipes or on a terminal.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "agent/agent_fault.h"
#include "agent/agent_message.h"
#include "base/unique_fd.h"

namespace ringside {

// A command that runs, and our ends of what it reads and writes, which do not block. A terminal is
// both `in` and `out`, and there is no `err` then.
struct GuestChild {
  pid_t pid = -1;  // of its process group and session, too
  UniqueFd in, out, err;
  // The command's end of its terminal: while somebody has it open, the other reports no hang-up.
  UniqueFd terminal;
};

// Waits until the kernel has taken the program, or has refused it. `of` says whose fault it is.
// `files` is the limit of descriptors that the agent began with: its own is higher.
AgentFault StartChild(const ExecMessage& command, const rlimit& files, GuestChild& child,
                      FaultOf& of);

void SetTerminalSize(int terminal, TerminalSize size);

}  // namespace ringside
