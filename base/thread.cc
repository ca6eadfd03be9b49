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
    // By the thread itself: another one's name goes through /proc, which takes 40 us.
    thread = std::thread([shown = name.substr(0, 15), run = std::move(body)] {
      pthread_setname_np(pthread_self(), shown.c_str());
      run();
    });
  } catch (const std::system_error& error) {
    thread = ErrnoError(error.code().value(), absl::StrFormat("cannot start thread '%s'", name),
                        "raise 'ulimit -u', 'ulimit -v' or the pids limit of the control group");
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return thread;
}

}  // namespace ringside
