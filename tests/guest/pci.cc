// See pci.h.

#include "pci.h"

#include "console.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint64_t kEcam = 0xe0000000;
constexpr uint16_t kConfigAddress = 0xcf8;
constexpr uint16_t kConfigData = 0xcfc;
constexpr uint32_t kConfigEnable = 0x80000000;

constexpr uint32_t kBarIsIo = 0x1;
constexpr uint32_t kBarTypeMask = 0x6;
constexpr uint32_t kBarType64 = 0x4;
constexpr uint32_t kBarFlags = 0xf;

// For BARs without an address: the upper part of the window below ECAM, which is where firmware and
// VMMs that start from the bottom come last.
uint64_t next_bar = 0xd8000000;

ConfigAccess access = ConfigAccess::kNone;

uint64_t EcamAddress(int device, uint16_t offset) {
  return kEcam + static_cast<uint64_t>(device) * 0x8000 + offset;
}

// Returns the data port for this register.
uint16_t SelectByPort(int device, uint16_t offset) {
  Out32(kConfigAddress, kConfigEnable | static_cast<uint32_t>(device) << 11 | (offset & 0xfcu));
  return static_cast<uint16_t>(kConfigData + (offset & 3));
}

bool IsVendor(uint32_t id) {
  return (id & 0xffff) != 0xffff && (id & 0xffff) != 0;
}

template <typename T>
T In(uint16_t port) {
  if constexpr (sizeof(T) == 1) return In8(port);
  if constexpr (sizeof(T) == 2) return In16(port);
  if constexpr (sizeof(T) == 4) return In32(port);
}

template <typename T>
void Out(uint16_t port, T value) {
  if constexpr (sizeof(T) == 1) Out8(port, value);
  if constexpr (sizeof(T) == 2) Out16(port, value);
  if constexpr (sizeof(T) == 4) Out32(port, value);
}

}  // namespace

ConfigAccess InitPci() {
  const auto by_ecam = Load<uint32_t>(EcamAddress(0, 0));
  const uint32_t by_ports = In32(SelectByPort(0, 0));
  if (IsVendor(by_ecam) && IsVendor(by_ports)) Expect("pci: ports agree", by_ecam, by_ports);
  if (IsVendor(by_ecam)) {
    access = ConfigAccess::kEcam;
  } else if (IsVendor(by_ports)) {
    access = ConfigAccess::kPorts;
  }
  return access;
}

template <typename T>
T PciFunction::Read(uint16_t offset) const {
  switch (access) {
    case ConfigAccess::kEcam:
      return Load<T>(EcamAddress(device_, offset));
    case ConfigAccess::kPorts:
      return In<T>(SelectByPort(device_, offset));
    case ConfigAccess::kNone:
      break;
  }
  return static_cast<T>(-1);
}

template <typename T>
void PciFunction::Write(uint16_t offset, T value) const {
  switch (access) {
    case ConfigAccess::kEcam:
      return Store<T>(EcamAddress(device_, offset), value);
    case ConfigAccess::kPorts:
      return Out<T>(SelectByPort(device_, offset), value);
    case ConfigAccess::kNone:
      break;
  }
}

template uint8_t PciFunction::Read(uint16_t) const;
template uint16_t PciFunction::Read(uint16_t) const;
template uint32_t PciFunction::Read(uint16_t) const;
template void PciFunction::Write(uint16_t, uint8_t) const;
template void PciFunction::Write(uint16_t, uint16_t) const;
template void PciFunction::Write(uint16_t, uint32_t) const;

bool PciFunction::IsPresent() const {
  return IsVendor(Read<uint16_t>(pci_register::kVendor));
}

uint8_t PciFunction::FindCapability(uint8_t id, uint8_t after) const {
  constexpr uint16_t kHasCapabilities = 0x10;
  if ((Read<uint16_t>(pci_register::kStatus) & kHasCapabilities) == 0) return 0;
  uint8_t offset = after == 0 ? Read<uint8_t>(pci_register::kCapabilities)
                              : Read<uint8_t>(static_cast<uint16_t>(after + 1));
  // At most 48 capabilities fit: a loop in the list ends the search.
  for (int i = 0; i < 48 && offset >= 0x40; ++i) {
    offset &= 0xfc;
    if (Read<uint8_t>(offset) == id) return offset;
    offset = Read<uint8_t>(static_cast<uint16_t>(offset + 1));
  }
  return 0;
}

bool PciFunction::Is64Bit(int bar) const {
  return (Read<uint32_t>(BarRegister(bar)) & kBarTypeMask) == kBarType64 && bar + 1 < kBars;
}

uint64_t PciFunction::BarAddress(int bar) const {
  uint64_t address = Read<uint32_t>(BarRegister(bar)) & ~kBarFlags;
  if (Is64Bit(bar)) address |= uint64_t{Read<uint32_t>(BarRegister(bar + 1))} << 32;
  return address;
}

void PciFunction::SetBarAddress(int bar, uint64_t address) const {
  Write<uint32_t>(BarRegister(bar), static_cast<uint32_t>(address));
  if (Is64Bit(bar)) {
    Write<uint32_t>(BarRegister(bar + 1), static_cast<uint32_t>(address >> 32));
  }
}

// PCI 3.0 section 6.2.5.1: all ones written, the bits that stay zero give the size.
uint64_t PciFunction::BarSize(int bar) const {
  if (bar > 0 && Is64Bit(bar - 1)) return 0;
  if ((Read<uint32_t>(BarRegister(bar)) & kBarIsIo) != 0) return 0;
  const uint16_t decode = command();
  const uint64_t address = BarAddress(bar);
  SetCommand(static_cast<uint16_t>(decode & ~(pci_command::kIo | pci_command::kMemory)));
  SetBarAddress(bar, ~uint64_t{0});
  const uint64_t mask = BarAddress(bar);
  SetBarAddress(bar, address);
  SetCommand(decode);
  if (mask == 0) return 0;
  return ~(Is64Bit(bar) ? mask : mask | 0xffffffff00000000) + 1;
}

uint64_t PciFunction::PlaceBar(int bar) const {
  const uint64_t found = BarAddress(bar);
  const uint64_t size = BarSize(bar);
  if (found != 0 && IsMapped(found, size)) return found;
  const uint64_t alignment = size > kPageSize ? size : kPageSize;
  const uint64_t address = (next_bar + alignment - 1) & ~(alignment - 1);
  next_bar = address + alignment;
  SetBarAddress(bar, address);
  return BarAddress(bar);
}

}  // namespace guest
