// A PCI device that the host gives to the guest whole: the one of
// tests/support/vfio/fake_pci_device.h, whose registers and orders these are.

#include "allocator.h"
#include "checks.h"
#include "console.h"
#include "deadline.h"
#include "machine.h"
#include "msix.h"
#include "pci.h"

namespace guest {
namespace {

constexpr uint16_t kVendor = 0x1234;
constexpr uint16_t kDevice = 0x0a55;
constexpr uint64_t kMemory = 0;
constexpr uint64_t kRaise = kPageSize;
constexpr uint64_t kStoreAt = kPageSize + 8;
constexpr uint64_t kSpare = kPageSize + 0x100;
constexpr uint64_t kMoreMemory = 3 * kPageSize;
constexpr uint64_t kStored = 0x5566778811223344;
constexpr uint64_t kElsewhere = 0xd0000000;
constexpr uint64_t kBar2Size = 256;

class Assigned {
 public:
  bool Find();
  void CheckRegisters() const;
  void CheckDma() const;
  void CheckMessages();
  void CheckMoves();

 private:
  uint64_t At(uint64_t offset) const { return bar_ + offset; }
  void Raise(uint32_t vector) const { Store<uint32_t>(At(kRaise), vector); }
  // Whether `mask` holds a message back, and lets it go.
  template <typename SetMask>
  void CheckMask(SetMask mask) const;

  PciFunction function_;
  Msix msix_;
  uint64_t bar_ = 0;
};

bool Assigned::Find() {
  InitMessages();
  if (InitPci() == ConfigAccess::kNone) return false;
  for (int device = 0; device < kPciDevices; ++device) {
    function_ = PciFunction(device);
    if (!function_.IsPresent()) continue;
    if (function_.Read<uint16_t>(pci_register::kVendor) != kVendor) continue;
    if (function_.Read<uint16_t>(pci_register::kDevice) != kDevice) continue;
    bar_ = function_.PlaceBar(0);
    function_.SetCommand(pci_command::kMemory);
    return msix_.Open(function_);
  }
  return false;
}

void Assigned::CheckRegisters() const {
  // Memory: the host counts exits meanwhile.
  for (uint64_t i = 0; i < 10'000; ++i) {
    Store<uint32_t>(At(kMemory + i % 1024 * 4), static_cast<uint32_t>(i));
  }
  Expect("assigned: memory", 9'999, Load<uint32_t>(At(kMemory + 9'999 % 1024 * 4)));
  Store<uint64_t>(At(kMoreMemory), kStored);
  Store<uint64_t>(At(kSpare), kStored);
  Expect("assigned: 8 bytes", kStored, Load<uint64_t>(At(kSpare)));
  Expect("assigned: 4 bytes", kStored >> 32, Load<uint32_t>(At(kSpare + 4)));
  Expect("assigned: 2 bytes", 0x1122, Load<uint16_t>(At(kSpare + 2)));
  Expect("assigned: 1 byte", 0x33, Load<uint8_t>(At(kSpare + 1)));
  const uint64_t small = function_.BarAddress(2);
  Expect("assigned: BAR of less than a page", 0x22222222, Load<uint32_t>(small + kBar2Size - 4));
  Expect("assigned: beyond its end", 0xffffffff, Load<uint32_t>(small + kBar2Size));
}

void Assigned::CheckDma() const {
  const uint64_t target = AllocatePages(kPageSize);
  Store<uint64_t>(At(kStoreAt), target + 64);
  Expect("assigned: DMA without bus mastering", 0, Load<uint64_t>(target + 64));
  function_.SetCommand(pci_command::kMemory | pci_command::kBusMaster);
  Store<uint64_t>(At(kStoreAt), target + 64);
  Expect("assigned: DMA", kStored, Load<uint64_t>(target + 64));
  // To where the guest has no memory, and into itself.
  Store<uint64_t>(At(kStoreAt), uint64_t{1} << 40);
  Store<uint64_t>(At(kStoreAt), bar_);
}

template <typename SetMask>
void Assigned::CheckMask(SetMask mask) const {
  mask(true);
  const uint32_t before = MessageCount(1);
  Raise(1);
  Expect("assigned: pending", 1, msix_.IsPending(1));
  Expect("assigned: messages while masked", before, MessageCount(1));
  mask(false);
  Expect("assigned: message afterwards", 1, SpinUntil([=] { return MessageCount(1) != before; }));
  Expect("assigned: messages afterwards", before + 1, MessageCount(1));
  Expect("assigned: pending afterwards", 0, msix_.IsPending(1));
}

void Assigned::CheckMessages() {
  Raise(0);  // to no one: MSI-X is off
  for (uint16_t entry = 0; entry < msix_.size(); ++entry) msix_.Route(entry, entry);
  msix_.SetEnabled(true);
  for (uint16_t entry = 0; entry < msix_.size(); ++entry) {
    for (uint32_t count = 1; count <= 20; ++count) {
      Raise(entry);
      if (!SpinUntil([=] { return MessageCount(entry) == count; })) {
        Expect("assigned: messages", count, MessageCount(entry));
      }
    }
  }
  for (int i = 0; i < 5; ++i) {
    CheckMask([this](bool masked) { msix_.SetMask(1, masked); });
    CheckMask([this](bool masked) { msix_.SetFunctionMask(masked); });
  }
  msix_.SetEnabled(false);
  const uint32_t before = MessageCount(2);
  Raise(2);
  msix_.SetEnabled(true);
  Raise(2);
  Expect("assigned: enabled again", 1, SpinUntil([=] { return MessageCount(2) != before; }));
}

void Assigned::CheckMoves() {
  const uint64_t home = bar_;
  for (int i = 0; i < 5; ++i) {
    Store<uint32_t>(home, 0x11111111);
    function_.SetBarAddress(0, kElsewhere);
    Expect("assigned: moved", 0x11111111, Load<uint32_t>(kElsewhere));
    Expect("assigned: left", 0xffffffff, Load<uint32_t>(home));
    Store<uint32_t>(kElsewhere, 0x22222222);
    function_.SetCommand(pci_command::kBusMaster);
    Expect("assigned: no decoding", 0xffffffff, Load<uint32_t>(kElsewhere));
    function_.SetBarAddress(0, home);
    function_.SetCommand(pci_command::kMemory | pci_command::kBusMaster);
    Expect("assigned: moved back", 0x22222222, Load<uint32_t>(home));
  }
}

}  // namespace

void CheckAssigned() {
  Assigned assigned;
  if (!assigned.Find()) {
    Expect("assigned: device", 1, 0);
    return;
  }
  assigned.CheckRegisters();
  assigned.CheckDma();
  assigned.CheckMessages();
  assigned.CheckMoves();
  Say("assigned ok");
}

}  // namespace guest
