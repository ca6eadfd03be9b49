// Input on COM1, polled and by interrupt; and output without an end.

#include "allocator.h"
#include "apic.h"
#include "checks.h"
#include "clock.h"
#include "console.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint16_t kDataPort = 0x3f8;
constexpr uint8_t kSerialPin = 4;  // COM1 is IRQ 4, and that is the I/O APIC pin too
constexpr uint8_t kSerialVector = 0x40;

volatile int interrupt_char = -1;  // written by the handler

__attribute__((interrupt)) void OnSerial(InterruptFrame*) {
  const int c = ReadCharIfReady();
  if (c >= 0) interrupt_char = c;
  EndOfInterrupt();
}

}  // namespace

void CheckEcho() {
  Say("echo ready");
  char c;
  do {
    c = ReadChar();
    Print(c);
  } while (c != '\n');
  Say("echo done");
}

void CheckSerialInterrupt() {
  EnableLocalApic();
  RouteInterrupt(kSerialPin, kSerialVector, OnSerial);
  SetReceiveInterrupt(ReceiveInterrupt::kOn);
  Say("irq ready");
  while (interrupt_char < 0) Pause();
  SetReceiveInterrupt(ReceiveInterrupt::kOff);
  Say("irq got ", Hex{static_cast<uint64_t>(interrupt_char), 2});
}

void Keep() {
  const uint64_t page = AllocatePages(kPageSize);
  Say("keeps");
  for (;;) {
    const char c = ReadChar();
    if (c == '\n') {
      Say("keeps ", Decimal{Load<uint64_t>(page)});
    } else {
      Store(page, Load<uint64_t>(page) * 10 + static_cast<uint64_t>(c - '0'));
    }
  }
}

void Touch(uint64_t pages) {
  if (!InitClock()) return;
  const uint64_t first = AllocatePages(pages * kPageSize);
  Say("touches");
  ReadChar();
  const uint64_t start = TimeStamp();
  for (uint64_t i = 0; i < pages; ++i) Store(first + i * kPageSize, i + 1);
  Say("touched in ", Decimal{TicksToNs(TimeStamp() - start)}, " ns");
}

// Without a look at the transmitter, which would be an exit before each byte: what is dropped is
// not missed.
void Beat(uint64_t period_us, uint64_t written_mib) {
  constexpr uint64_t kNsPerUs = 1000, kMiB = 1 << 20;
  if (!InitClock()) return;
  const uint64_t period = NsToTicks(period_us * kNsPerUs);
  if (written_mib > 0) {
    const uint64_t start = AllocatePages(written_mib * kMiB);
    for (uint64_t at = 0; at < written_mib * kMiB; at += kPageSize) Store(start + at, at + 1);
  }
  Say("beats");
  for (;;) {
    Out8(kDataPort, '.');
    const uint64_t start = TimeStamp();
    while (TimeStamp() - start < period) Pause();
  }
}

}  // namespace guest
