// The 8250/16550 behind console.h. Registers: National Semiconductor PC16550D data sheet,
// section 8.

#include "console.h"

#include "machine.h"

namespace guest {
namespace {

constexpr uint16_t kBase = 0x3f8;
constexpr uint16_t kData = kBase + 0;
constexpr uint16_t kInterruptEnable = kBase + 1;
constexpr uint16_t kFifoControl = kBase + 2;
constexpr uint16_t kLineControl = kBase + 3;
constexpr uint16_t kModemControl = kBase + 4;
constexpr uint16_t kLineStatus = kBase + 5;

constexpr uint8_t kReceiveInterruptEnable = 0x01;
constexpr uint8_t kEightBitsNoParity = 0x03;
constexpr uint8_t kReadyToTalk = 0x03;     // DTR, RTS
constexpr uint8_t kInterruptToBus = 0x08;  // OUT2: on a PC it gates the interrupt line
constexpr uint8_t kDataReady = 0x01;
constexpr uint8_t kTransmitterEmpty = 0x20;

}  // namespace

void InitConsole() {
  Out8(kInterruptEnable, 0);
  Out8(kLineControl, kEightBitsNoParity);
  Out8(kFifoControl, 0);
  Out8(kModemControl, kReadyToTalk);
}

void Print(char c) {
  while ((In8(kLineStatus) & kTransmitterEmpty) == 0) Pause();
  Out8(kData, static_cast<uint8_t>(c));
}

void Print(std::string_view text) {
  for (char c : text) Print(c);
}

void Print(Hex number) {
  Print("0x");
  int digits = 16;
  while (digits > number.min_digits && number.value >> (4 * (digits - 1)) == 0) --digits;
  for (int i = digits - 1; i >= 0; --i) Print("0123456789abcdef"[number.value >> (4 * i) & 0xf]);
}

void Print(Decimal number) {
  if (number.value >= 10) Print(Decimal{number.value / 10});
  Print(static_cast<char>('0' + number.value % 10));
}

bool Expect(std::string_view what, uint64_t expected, uint64_t got) {
  if (expected == got) return true;
  Say("FAIL ", what, ": expected ", Hex{expected}, " got ", Hex{got});
  return false;
}

char ReadChar() {
  for (;;) {
    int c = ReadCharIfReady();
    if (c >= 0) return static_cast<char>(c);
    Pause();
  }
}

void SetReceiveInterrupt(ReceiveInterrupt wanted) {
  const bool on = wanted == ReceiveInterrupt::kOn;
  Out8(kModemControl, on ? kReadyToTalk | kInterruptToBus : kReadyToTalk);
  Out8(kInterruptEnable, on ? kReceiveInterruptEnable : 0);
}

int ReadCharIfReady() {
  if ((In8(kLineStatus) & kDataReady) == 0) return -1;
  return In8(kData);
}

}  // namespace guest
