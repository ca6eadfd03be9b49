#include "base/signal_chain.h"

namespace ringside {
namespace {

void SetDefault(int signal) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
}

}  // namespace

void HandOn(const struct sigaction& before, int signal, siginfo_t* info, void* registers) {
  const bool is_fault = info->si_code > 0;  // of this thread's own; else somebody has sent it
  const bool has_handler = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  if (!has_handler && !is_fault && before.sa_handler == SIG_IGN) return;
  if (!has_handler || (before.sa_flags & SA_RESETHAND) != 0) SetDefault(signal);
  if (!has_handler) {
    raise(signal);  // which ends the process when this returns
  } else if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, registers);
  } else {
    before.sa_handler(signal);
  }
}

}  // namespace ringside
