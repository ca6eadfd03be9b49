#include "base/thread.h"

#include <csignal>
#include <pthread.h>
#include <system_error>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body) {
  // A thread inherits the mask of its creator: block before, restore after.
  sigset_t blocked, previous;
  sigfillset(&blocked);
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    sigdelset(&blocked, fault);  // a thread's own doing: whoever handles them must get to see them
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  absl::StatusOr<std::thread> thread = absl::UnknownError("");
  try {
    thread = std::thread(std::move(body));
    pthread_setname_np(thread->native_handle(), name.substr(0, 15).c_str());
  } catch (const std::system_error& error) {
    thread = ErrnoError(error.code().value(), absl::StrFormat("cannot start thread '%s'", name),
                        "raise 'ulimit -u' or the pids limit of the control group");
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return thread;
}

}  // namespace ringside
