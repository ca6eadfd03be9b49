#include "benchmarks/support/single_step.h"

#include <csignal>
#include <ucontext.h>

namespace ringside::benchmarks {
namespace {

// Volatile: changed by a signal handler.
thread_local volatile uint64_t steps = 0;
thread_local volatile greg_t last_place = 0;

void CountStep(int, siginfo_t*, void* context) {
  const greg_t place = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  // A repeated instruction traps at each of its rounds.
  if (place != last_place) steps = steps + 1;
  last_place = place;
}

void TakeTrapSignal() {
  struct sigaction action = {};
  action.sa_sigaction = CountStep;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGTRAP, &action, nullptr);
}

}  // namespace

void StartSingleStep() {
  static const bool taken = (TakeTrapSignal(), true);
  static_cast<void>(taken);
  steps = 0;
  // Past the red zone, where the compiler may have its variables. The trap flag is bit 8.
  asm volatile(
      "lea -128(%%rsp), %%rsp\n"
      "pushfq\n"
      "orq $0x100, (%%rsp)\n"
      "popfq\n"
      "lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}

uint64_t StopSingleStep() {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n"
      "pushfq\n"
      "andq $~0x100, (%%rsp)\n"
      "popfq\n"
      "lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
  return steps;
}

}  // namespace ringside::benchmarks
