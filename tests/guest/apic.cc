// See apic.h. Local APIC: SDM chapter 10; I/O APIC: Intel 82093AA data sheet, section 3.

#include "apic.h"

#include "machine.h"

namespace guest {
namespace {

constexpr uint64_t kLocalApic = 0xfee00000;
constexpr uint64_t kId = kLocalApic + 0x020;  // bits 31:24
constexpr uint64_t kEndOfInterrupt = kLocalApic + 0x0b0;
constexpr uint64_t kSpuriousVector = kLocalApic + 0x0f0;
constexpr uint64_t kInterruptCommandLow = kLocalApic + 0x300;
constexpr uint64_t kInterruptCommandHigh = kLocalApic + 0x310;

constexpr uint32_t kSoftwareEnable = 0x100;
constexpr uint8_t kSpurious = 0xff;

constexpr uint32_t kDeliveryPending = 0x1000;
constexpr uint32_t kInit = 0x4500;     // level assert, delivery mode INIT
constexpr uint32_t kStartUp = 0x4600;  // level assert, delivery mode start-up; low byte: page

constexpr uint64_t kIoApicIndex = 0xfec00000;
constexpr uint64_t kIoApicData = 0xfec00010;
constexpr uint32_t kIoApicRedirection = 0x10;  // two registers a pin

constexpr uint64_t kTrampoline = 0x10000;

// Time by the time stamp counter, taken to run at 1 to 5 GHz: the waits only have to be long
// enough.
constexpr uint64_t kTenMilliseconds = 50'000'000;
constexpr uint64_t kSomeSeconds = 15'000'000'000;

// Spurious interrupts want no end-of-interrupt (SDM 10.9).
__attribute__((interrupt)) void OnSpurious(InterruptFrame*) {}

void WriteIoApic(uint32_t index, uint32_t value) {
  Store<uint32_t>(kIoApicIndex, index);
  Store<uint32_t>(kIoApicData, value);
}

void WaitTicks(uint64_t ticks) {
  const uint64_t start = TimeStamp();
  while (TimeStamp() - start < ticks) Pause();
}

void SendInterrupt(uint32_t apic_id, uint32_t command) {
  Store<uint32_t>(kInterruptCommandHigh, apic_id << 24);
  Store<uint32_t>(kInterruptCommandLow, command);
  while ((Load<uint32_t>(kInterruptCommandLow) & kDeliveryPending) != 0) Pause();
}

}  // namespace

// boot.S: real-mode code and, within it, the counter.
extern "C" const char ap_trampoline[], ap_trampoline_count[], ap_trampoline_end[];

void EnableLocalApic() {
  SetInterruptHandler(kSpurious, OnSpurious);
  Store<uint32_t>(kSpuriousVector, kSoftwareEnable | kSpurious);
}

void EndOfInterrupt() {
  Store<uint32_t>(kEndOfInterrupt, 0);
}

void RouteInterrupt(uint8_t pin, uint8_t vector, InterruptHandler handler) {
  SetInterruptHandler(vector, handler);
  const uint32_t redirection = kIoApicRedirection + 2 * pin;
  const uint32_t this_cpu = Load<uint32_t>(kId) & 0xff000000;
  WriteIoApic(redirection + 1, this_cpu);
  WriteIoApic(redirection, vector);  // fixed, physical, active high, edge, not masked
}

uint32_t StartApplicationProcessors(uint32_t count) {
  for (const char* from = ap_trampoline; from < ap_trampoline_end; ++from) {
    Store<char>(kTrampoline + (from - ap_trampoline), *from);
  }
  // The sequence of SDM 8.4.4.1, one processor after the other.
  constexpr uint32_t kPage = kTrampoline / kPageSize;
  for (uint32_t apic_id = 1; apic_id <= count; ++apic_id) SendInterrupt(apic_id, kInit);
  WaitTicks(kTenMilliseconds);
  for (uint32_t apic_id = 1; apic_id <= count; ++apic_id) {
    SendInterrupt(apic_id, kStartUp | kPage);
    SendInterrupt(apic_id, kStartUp | kPage);
  }
  const uint64_t counter = kTrampoline + (ap_trampoline_count - ap_trampoline);
  const uint64_t start = TimeStamp();
  while (Load<uint32_t>(counter) < count && TimeStamp() - start < kSomeSeconds) Pause();
  return Load<uint32_t>(counter);
}

}  // namespace guest
