// MSI-X of a PCI function, and the handlers its messages reach: a fixed number of slots, each a
// vector with a counter.
//
// Source: PCI Local Bus 3.0, section 6.8.2; message format: SDM 10.11.

#ifndef RINGSIDE_TESTS_GUEST_MSIX_H_
#define RINGSIDE_TESTS_GUEST_MSIX_H_

#include <cstdint>

#include "pci.h"

namespace guest {

constexpr int kMessageSlots = 168;
constexpr uint8_t kFirstMessageVector = 0x50;

// Installs the handlers and switches the local APIC on; only the first call does anything.
void InitMessages();
// The first of `count` slots that nobody else has; ends the guest with a FAIL line if there are
// none left. The last one of all, kMessageSlots - 1, is never given.
int TakeMessageSlots(int count);
// How many messages have come in on this slot. One processor at a time may be sent them.
const volatile uint32_t& MessageCounter(int slot);
inline uint32_t MessageCount(int slot) {
  return MessageCounter(slot);
}

class Msix {
 public:
  // Finds the capability and places its BARs; false if there is none. Leaves MSI-X off.
  bool Open(const PciFunction& function);
  // Finds table and pending bits again after their BAR has moved.
  void FindTable();

  uint16_t size() const { return size_; }
  void SetEnabled(bool enabled);
  void SetFunctionMask(bool masked);

  // Points the entry at the handler of `slot` on the processor with this APIC ID, and unmasks it.
  void Route(uint16_t entry, int slot, uint32_t processor = 0) const;
  // The same without touching the mask.
  void WriteMessage(uint16_t entry, int slot, uint32_t processor = 0) const;
  void SetMask(uint16_t entry, bool masked) const;
  bool IsPending(uint16_t entry) const;

  uint64_t table() const { return table_; }

 private:
  void UpdateControl(uint16_t bit, bool set);
  uint64_t Entry(uint16_t entry) const { return table_ + uint64_t{16} * entry; }

  PciFunction function_;
  uint8_t capability_ = 0;
  uint16_t size_ = 0;
  uint64_t table_ = 0;
  uint64_t pending_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MSIX_H_
