// See apic.h. Local APIC: SDM chapter 10; I/O APIC: Intel 82093AA data sheet, section 3.

#include "apic.h"

#include "machine.h"

namespace guest {
namespace {

constexpr uint64_t kLocalApic = 0xfee00000;
constexpr uint64_t kId = kLocalApic + 0x020;  // bits 31:24
constexpr uint64_t kTaskPriority = kLocalApic + 0x080;
constexpr uint64_t kEndOfInterrupt = kLocalApic + 0x0b0;
constexpr uint64_t kSpuriousVector = kLocalApic + 0x0f0;
constexpr uint64_t kInterruptCommandLow = kLocalApic + 0x300;
constexpr uint64_t kInterruptCommandHigh = kLocalApic + 0x310;

constexpr uint32_t kSoftwareEnable = 0x100;
constexpr uint8_t kSpurious = 0xff;

constexpr uint32_t kDeliveryPending = 0x1000;
constexpr uint32_t kFixed = 0x4000;    // level assert, delivery mode fixed; low byte: vector
constexpr uint32_t kInit = 0x4500;     // level assert, delivery mode INIT
constexpr uint32_t kStartUp = 0x4600;  // level assert, delivery mode start-up; low byte: page

constexpr uint64_t kIoApicIndex = 0xfec00000;
constexpr uint64_t kIoApicData = 0xfec00010;
constexpr uint32_t kIoApicRedirection = 0x10;  // two registers a pin

// Spurious interrupts want no end-of-interrupt (SDM 10.9).
__attribute__((interrupt)) void OnSpurious(InterruptFrame*) {}

void WriteIoApic(uint32_t index, uint32_t value) {
  Store<uint32_t>(kIoApicIndex, index);
  Store<uint32_t>(kIoApicData, value);
}

void SendCommand(uint32_t apic_id, uint32_t command) {
  Store<uint32_t>(kInterruptCommandHigh, apic_id << 24);
  Store<uint32_t>(kInterruptCommandLow, command);
  while ((Load<uint32_t>(kInterruptCommandLow) & kDeliveryPending) != 0) Pause();
}

}  // namespace

void EnableLocalApic() {
  SetInterruptHandler(kSpurious, OnSpurious);
  Store<uint32_t>(kSpuriousVector, kSoftwareEnable | kSpurious);
}

// SDM 10.8.3.1: a vector whose upper half is not above the task priority waits.
void SetInterrupts(Interrupts wanted) {
  Store<uint32_t>(kTaskPriority, wanted == Interrupts::kTaken ? 0 : 0xf0);
}

void EndOfInterrupt() {
  Store<uint32_t>(kEndOfInterrupt, 0);
}

void RouteInterrupt(uint8_t pin, uint8_t vector, InterruptHandler handler) {
  SetInterruptHandler(vector, handler);
  const uint32_t redirection = kIoApicRedirection + 2 * pin;
  WriteIoApic(redirection + 1, ApicId() << 24);
  WriteIoApic(redirection, vector);  // fixed, physical, active high, edge, not masked
}

uint32_t ApicId() {
  return Load<uint32_t>(kId) >> 24;
}

void SendInterrupt(uint32_t apic_id, uint8_t vector) {
  SendCommand(apic_id, kFixed | vector);
}

void SendInit(uint32_t apic_id) {
  SendCommand(apic_id, kInit);
}

void SendStartUp(uint32_t apic_id, uint64_t address) {
  SendCommand(apic_id, kStartUp | static_cast<uint32_t>(address / kPageSize));
}

}  // namespace guest
