#include "command/terminal.h"

#include <csignal>
#include <initializer_list>
#include <termios.h>
#include <unistd.h>

namespace ringside {
namespace {

// All that would end the process, but for those that ask the machine to end.
constexpr std::initializer_list<int> kCrashSignals = {SIGABRT, SIGALRM, SIGBUS,    SIGFPE,  SIGILL,
                                                      SIGPROF, SIGSEGV, SIGSYS,    SIGTRAP, SIGUSR1,
                                                      SIGUSR2, SIGXCPU, SIGVTALRM, SIGXFSZ};

int raw_fd = -1;
termios saved;

// All of it async-signal-safe (POSIX 2.4.3). Who was put into the background meanwhile would be
// stopped by SIGTTOU for ever; blocked, it lets the change through.
void Restore() {
  if (raw_fd < 0) return;
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &stop, &before);
  tcsetattr(raw_fd, TCSANOW, &saved);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Installed with SA_RESETHAND: the signal raised again ends the process as it would have.
void RestoreAndCrash(int signal) {
  Restore();
  raise(signal);
}

}  // namespace

// In the background a change of the terminal would stop us (SIGTTOU).
bool RawTerminal::IsOurs(int fd) {
  return isatty(fd) && tcgetpgrp(fd) == getpgrp();
}

std::unique_ptr<RawTerminal> RawTerminal::Enter(int fd) {
  if (!IsOurs(fd) || tcgetattr(fd, &saved) != 0) return nullptr;
  termios raw = saved;
  cfmakeraw(&raw);
  raw.c_oflag |= OPOST;  // our own lines still end in a line feed alone
  if (tcsetattr(fd, TCSADRAIN, &raw) != 0) return nullptr;
  raw_fd = fd;

  struct sigaction action = {};
  action.sa_handler = RestoreAndCrash;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (const int signal : kCrashSignals) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;  // whoever handles it does not crash
    sigaction(signal, &action, nullptr);
  }
  return std::unique_ptr<RawTerminal>(new RawTerminal);
}

RawTerminal::~RawTerminal() {
  Restore();
  raw_fd = -1;
  for (const int signal : kCrashSignals) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == RestoreAndCrash) std::signal(signal, SIG_DFL);
  }
}

}  // namespace ringside
