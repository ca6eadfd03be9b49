#include "benchmarks/support/guest_words.h"

#include <cinttypes>
#include <cstdio>
#include <ctime>

#include "base/tsc.h"
#include "tests/guest/clock.h"
#include "tests/guest/console.h"

namespace guest {
namespace {

constexpr long kClockRunNs = 20'000'000;  // long enough for 1 in 10,000

uint64_t ticks_per_ms;

}  // namespace

bool InitClock() {
  const auto first = ringside::TscMoment::Now();
  const timespec pause = {.tv_sec = 0, .tv_nsec = kClockRunNs};
  nanosleep(&pause, nullptr);
  const auto last = ringside::TscMoment::Now();
  const auto ns = static_cast<uint64_t>(last.ns - first.ns);
  ticks_per_ms = (last.ticks - first.ticks) * 1'000'000 / ns;
  return true;
}

uint64_t TicksPerMs() {
  return ticks_per_ms;
}

void Print(char c) {
  std::putchar(c);
}

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void Print(Hex number) {
  std::printf("0x%0*" PRIx64, number.min_digits, number.value);
}

void Print(Decimal number) {
  std::printf("%" PRIu64, number.value);
}

}  // namespace guest

namespace ringside {

void FlushGuestConsole() {
  std::fflush(stdout);
}

}  // namespace ringside
