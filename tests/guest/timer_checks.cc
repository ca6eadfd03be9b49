// The interval timer (Intel 8254 data sheet), used as a guest does that calibrates by it: counter 2
// counts down once, and bit 5 of port 0x61 is its output.

#include "checks.h"
#include "console.h"
#include "deadline.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint16_t kCounter2 = 0x42;
constexpr uint16_t kControl = 0x43;
constexpr uint16_t kNmiStatus = 0x61;
constexpr uint8_t kGate = 1 << 0;
constexpr uint8_t kSpeaker = 1 << 1;
constexpr uint8_t kOutput = 1 << 5;
constexpr uint8_t kNmiReasons = 0xc0;
constexpr uint8_t kCounter2Once = 0xb0;  // mode 0, low byte then high byte
constexpr uint16_t kTicks = 11932;       // of 1.193182 MHz: 10 ms

}  // namespace

void SayTimer() {
  Out8(kNmiStatus, static_cast<uint8_t>((In8(kNmiStatus) & ~kSpeaker) | kGate));
  bool was_over = true;
  for (int tries = 0; tries < 20 && was_over; ++tries) {  // held up for 10 ms, one sees the end
    Out8(kControl, kCounter2Once);
    Out8(kCounter2, kTicks & 0xff);
    Out8(kCounter2, kTicks >> 8);
    was_over = (In8(kNmiStatus) & kOutput) != 0;
  }
  const bool ends = SpinUntil([] { return (In8(kNmiStatus) & kOutput) != 0; });
  Expect("pit: a wait for it ends", 1, ends);
  Expect("pit: reasons of an NMI", 0, In8(kNmiStatus) & kNmiReasons);
  Say("pit ", was_over ? "absent" : "counts");
}

}  // namespace guest
