// See end.h.

#include "end.h"

#include <array>

#include "console.h"
#include "interrupts.h"
#include "machine.h"

namespace guest {
namespace {

// ACPI 6.4 section 4.8.3.7, sleep control register: SLP_TYP 5 (bits 4:2) and SLP_EN (bit 5). The
// port is the one Cloud Hypervisor chose, and Ringside after it.
void PowerOff() {
  Out8(0x600, 5 << 2 | 1 << 5);
}

// Keyboard controller: pulse the reset line.
void Reset() {
  Out8(0x64, 0xfe);
}

// QEMU's isa-debug-exit device: QEMU exits with status 2 * value + 1.
void QemuExit() {
  Out8(0xf4, 0x10);
}

// No interrupt can be delivered through an empty table, nor the faults that follow from that.
void TripleFault() {
  RunInRing0([] {
    const struct [[gnu::packed]] {
      uint16_t limit = 0;
      uint64_t base = 0;
    } empty;
    asm volatile("lidt %0; ud2" : : "m"(empty));
  });
}

// Instructions fetched from where no memory is: KVM's emulator cannot do that, and gives up with
// KVM_EXIT_INTERNAL_ERROR.
void InternalError() {
  RunInRing0(reinterpret_cast<void (*)()>(0xd0000000));
}

void Halt() {
  RunInRing0([] {
    for (;;) asm volatile("cli; hlt");
  });
}

void Spin() {}  // as End does after any of these

struct Ending {
  std::string_view name;
  void (*end)();
};
constexpr std::array<Ending, 7> kEndings = {{
    {"poweroff", PowerOff},
    {"reset", Reset},
    {"triple", TripleFault},
    {"internal", InternalError},
    {"halt", Halt},
    {"spin", Spin},
    {"qemu", QemuExit},
}};

const Ending* chosen = &kEndings[0];

}  // namespace

void ChooseEnd(std::string_view name) {
  for (const Ending& ending : kEndings) {
    if (ending.name == name) {
      chosen = &ending;
      return;
    }
  }
  Say("FAIL end: expected poweroff, reset, triple, internal, halt, spin or qemu got ", name);
}

void End() {
  Say("end=", chosen->name);
  chosen->end();
  for (;;) Pause();
}

}  // namespace guest
