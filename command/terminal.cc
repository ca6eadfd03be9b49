#include "command/terminal.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <termios.h>
#include <unistd.h>

#include "base/signal_chain.h"

namespace ringside {
namespace {

// All that would end the process, but for those that ask the machine to end.
constexpr std::initializer_list<int> kCrashSignals = {SIGABRT, SIGALRM, SIGBUS,    SIGFPE,  SIGILL,
                                                      SIGPROF, SIGSEGV, SIGSYS,    SIGTRAP, SIGUSR1,
                                                      SIGUSR2, SIGXCPU, SIGVTALRM, SIGXFSZ};

int raw_fd = -1;
termios saved;
std::array<struct sigaction, NSIG> handled_before;

// All of it async-signal-safe (POSIX 2.4.3). Who was put into the background meanwhile would be
// stopped by SIGTTOU for ever; blocked, it lets the change through.
void Restore() {
  if (raw_fd < 0) return;
  const int error = errno;
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &stop, &before);
  tcsetattr(raw_fd, TCSANOW, &saved);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
}

// Also where a sanitizer is to report the crash, and where the library's guard of mapped memory
// (base/mapping_guard.h) goes on with the machine: it is about to end then.
void RestoreAndHandOn(int signal, siginfo_t* info, void* registers) {
  Restore();
  HandOn(handled_before[signal], signal, info, registers);
}

}  // namespace

// In the background a change of the terminal would stop us (SIGTTOU).
bool RawTerminal::IsOurs(int fd) {
  return isatty(fd) && tcgetpgrp(fd) == getpgrp();
}

std::unique_ptr<RawTerminal> RawTerminal::Enter(int fd) {
  if (!IsOurs(fd) || tcgetattr(fd, &saved) != 0) return nullptr;
  // The handlers come first: whoever sees the terminal raw may rely on them.
  raw_fd = fd;
  std::unique_ptr<RawTerminal> terminal(new RawTerminal);
  termios raw = saved;
  cfmakeraw(&raw);
  raw.c_oflag |= OPOST;  // our own lines still end in a line feed alone
  if (tcsetattr(fd, TCSADRAIN, &raw) != 0) return nullptr;
  return terminal;
}

RawTerminal::RawTerminal() {
  struct sigaction action = {};
  action.sa_sigaction = RestoreAndHandOn;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kCrashSignals) {
    struct sigaction& before = handled_before[signal];
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

RawTerminal::~RawTerminal() {
  Restore();
  raw_fd = -1;
  for (const int signal : kCrashSignals) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    // Whoever came later hands on to ours, which goes on doing so.
    if (now.sa_sigaction == RestoreAndHandOn) sigaction(signal, &handled_before[signal], nullptr);
  }
}

}  // namespace ringside
