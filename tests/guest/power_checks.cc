// What a guest has to do with its power beside ending: the button that is pressed for it, and the
// port where its kernel would say that it has crashed.

#include "apic.h"
#include "checks.h"
#include "console.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint8_t kButtonPin = 16;  // as the DSDT says
constexpr uint8_t kButtonVector = 0x41;
constexpr uint16_t kPanicPort = 0x505;
constexpr uint8_t kPanicked = 1;

volatile unsigned pressed = 0;  // written by the handler

__attribute__((interrupt)) void OnButton(InterruptFrame*) {
  pressed = pressed + 1;
  EndOfInterrupt();
}

}  // namespace

void AwaitButton() {
  EnableLocalApic();
  RouteInterrupt(kButtonPin, kButtonVector, OnButton);
  Say("button ready");
  while (pressed == 0) Pause();
  Say("button pressed");
}

void Panic(uint64_t times) {
  Expect("panic port", 3, In8(kPanicPort));
  for (uint64_t i = 0; i < times; ++i) Out8(kPanicPort, kPanicked);
  Say("panicked ", Decimal{times});
}

}  // namespace guest
