// The serial console: an 8250/16550 UART at 0x3f8 (COM1), polled. All the guest says goes out here,
// a line at a time, "guest: " in front and LF behind. For the bootstrap processor only.

#ifndef RINGSIDE_TESTS_GUEST_CONSOLE_H_
#define RINGSIDE_TESTS_GUEST_CONSOLE_H_

#include <cstdint>
#include <string_view>

namespace guest {

struct Hex {
  uint64_t value;
  int min_digits = 1;
};
struct Decimal {
  uint64_t value;
};

void InitConsole();

void Print(char c);
void Print(std::string_view text);
void Print(Hex number);  // 0x...
void Print(Decimal number);

// Say("memory start=", Hex{start}) prints the line "guest: memory start=0x...".
template <typename... Parts>
void Say(Parts... parts) {
  Print("guest: ");
  (Print(parts), ...);
  Print('\n');
}

// Prints "guest: FAIL what: expected X got Y" and returns false unless the two are equal.
bool Expect(std::string_view what, uint64_t expected, uint64_t got);

// Waits for a character, without interrupts.
char ReadChar();

// For receiving by interrupt: whether the UART asks for IRQ 4 when a character comes in, and what
// has come in, if anything (-1 if not).
enum class ReceiveInterrupt { kOff, kOn };
void SetReceiveInterrupt(ReceiveInterrupt wanted);
int ReadCharIfReady();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_CONSOLE_H_
