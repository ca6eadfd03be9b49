// Unix stream sockets of this process's own.
//
// They refuse descriptors that are sent along with bytes, where the kernel can (Linux 6.16): nobody
// here wants any, and whoever drops the last copy of one waits for as long as its owner has set,
// such as the hour of a TCP socket with SO_LINGER. Before, it is the receiving thread that drops
// what it does not take.
#pragma once

#include "base/fd.h"

namespace ringside {

// SOCK_CLOEXEC is set, and `flags`, such as SOCK_NONBLOCK. Not valid: errno.
UniqueFd NewUnixSocket(int flags);
// Of one that was made elsewhere. Those that a listening socket accepts from then on refuse, too.
void RefuseDescriptors(int fd);

}  // namespace ringside
