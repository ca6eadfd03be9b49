#include "agent/guest/guest_shutdown.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <linux/reboot.h>
#include <spawn.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guest/guest_system.h"

namespace ringside {
namespace {

constexpr int64_t kPatienceNs = 5'000'000'000;  // after SIGTERM
constexpr int64_t kLastWaitNs = 1'000'000'000;  // after SIGKILL
constexpr timespec kBetweenLooks = {.tv_sec = 0, .tv_nsec = 10'000'000};

// Whether none is left. All of the guest's become children of PID 1 when their own parents end.
bool WaitForAll(int64_t limit_ns) {
  const int64_t end_ns = GuestMonotonicNs() + limit_ns;
  while (GuestMonotonicNs() < end_ns) {
    const pid_t reaped = waitpid(-1, nullptr, WNOHANG);
    if (reaped < 0 && errno == ECHILD) return true;
    if (reaped == 0) nanosleep(&kBetweenLooks, nullptr);
  }
  return false;
}

}  // namespace

void ShutDownAsInit(ShutDownHow how) {
  Say("shutting down");
  kill(-1, SIGTERM);
  kill(-1, SIGCONT);
  if (!WaitForAll(kPatienceNs)) {
    kill(-1, SIGKILL);
    WaitForAll(kLastWaitNs);
  }
  sync();
  reboot(how == ShutDownHow::kReboot ? LINUX_REBOOT_CMD_RESTART : LINUX_REBOOT_CMD_POWER_OFF);
  Say("the kernel does not shut down");
  for (;;) pause();
}

bool AskInitToShutDown(ShutDownHow how) {
  char reboot_name[] = "reboot", power_off_name[] = "poweroff";
  char* const arguments[] = {how == ShutDownHow::kReboot ? reboot_name : power_off_name, nullptr};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid;
  const int error = posix_spawnp(&pid, arguments[0], nullptr, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  return error == 0;
}

}  // namespace ringside
