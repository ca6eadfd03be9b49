// Input on COM1, polled and by interrupt.

#include "apic.h"
#include "checks.h"
#include "console.h"
#include "machine.h"

namespace guest {
namespace {

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

}  // namespace guest
