// See msix.h.

#include "msix.h"

#include <utility>

#include "apic.h"
#include "console.h"
#include "end.h"
#include "interrupts.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint16_t kControl = 2;
constexpr uint16_t kTable = 4;
constexpr uint16_t kPendingBits = 8;
constexpr uint16_t kControlSize = 0x07ff;  // less one
constexpr uint16_t kControlFunctionMask = 0x4000;
constexpr uint16_t kControlEnable = 0x8000;

// Of a table entry.
constexpr uint64_t kAddressLow = 0;
constexpr uint64_t kAddressHigh = 4;
constexpr uint64_t kData = 8;
constexpr uint64_t kVectorControl = 12;
constexpr uint32_t kMasked = 1;

// Physical destination, no redirection hint; bits 19:12 are the APIC ID.
constexpr uint32_t kMessageAddress = 0xfee00000;
constexpr int kMessageDestinationShift = 12;

// A cache line each: slots belong to different processors.
struct alignas(64) Slot {
  volatile uint32_t count;
};
Slot slots[kMessageSlots];

template <int kSlot>
__attribute__((interrupt)) void OnMessage(InterruptFrame*) {
  slots[kSlot].count = slots[kSlot].count + 1;
  EndOfInterrupt();
}

template <int... kSlots>
void SetHandlers(std::integer_sequence<int, kSlots...>) {
  (SetInterruptHandler(kFirstMessageVector + kSlots, OnMessage<kSlots>), ...);
}

}  // namespace

void InitMessages() {
  static bool done = false;
  if (done) return;
  done = true;
  SetHandlers(std::make_integer_sequence<int, kMessageSlots>());
  EnableLocalApic();
}

int TakeMessageSlots(int count) {
  static int next = 0;
  if (next + count >= kMessageSlots) {
    Expect("messages: slots left", static_cast<uint64_t>(count),
           static_cast<uint64_t>(kMessageSlots - 1 - next));
    End();
  }
  next += count;
  return next - count;
}

const volatile uint32_t& MessageCounter(int slot) {
  return slots[slot].count;
}

bool Msix::Open(const PciFunction& function) {
  function_ = function;
  capability_ = function.FindCapability(pci_capability::kMsix);
  if (capability_ == 0) return false;
  const auto control = function.Read<uint16_t>(capability_ + kControl);
  size_ = static_cast<uint16_t>((control & kControlSize) + 1);
  SetEnabled(false);
  for (const uint16_t place : {kTable, kPendingBits}) {
    function.PlaceBar(function.Read<uint32_t>(capability_ + place) & 7);
  }
  FindTable();
  return true;
}

void Msix::FindTable() {
  const auto table = function_.Read<uint32_t>(capability_ + kTable);
  const auto pending = function_.Read<uint32_t>(capability_ + kPendingBits);
  table_ = function_.BarAddress(table & 7) + (table & ~7u);
  pending_ = function_.BarAddress(pending & 7) + (pending & ~7u);
}

void Msix::UpdateControl(uint16_t bit, bool set) {
  const auto control = function_.Read<uint16_t>(capability_ + kControl);
  function_.Write<uint16_t>(capability_ + kControl,
                            static_cast<uint16_t>(set ? control | bit : control & ~bit));
}

void Msix::SetEnabled(bool enabled) {
  UpdateControl(kControlEnable, enabled);
}

void Msix::SetFunctionMask(bool masked) {
  UpdateControl(kControlFunctionMask, masked);
}

void Msix::WriteMessage(uint16_t entry, int slot, uint32_t processor) const {
  Store<uint32_t>(Entry(entry) + kAddressLow,
                  kMessageAddress | processor << kMessageDestinationShift);
  Store<uint32_t>(Entry(entry) + kAddressHigh, 0);
  Store<uint32_t>(Entry(entry) + kData, static_cast<uint32_t>(kFirstMessageVector + slot));
}

void Msix::SetMask(uint16_t entry, bool masked) const {
  Store<uint32_t>(Entry(entry) + kVectorControl, masked ? kMasked : 0);
}

void Msix::Route(uint16_t entry, int slot, uint32_t processor) const {
  SetMask(entry, true);
  WriteMessage(entry, slot, processor);
  SetMask(entry, false);
}

bool Msix::IsPending(uint16_t entry) const {
  return (Load<uint64_t>(pending_ + entry / 64 * 8) >> (entry % 64) & 1) != 0;
}

}  // namespace guest
