// PCI configuration of bus 0, function 0 of each device: through ECAM at 0xe0000000 where it is,
// else through ports 0xcf8 and 0xcfc. BARs are used as found; one without an address gets one, so
// that the guest runs where no firmware assigned any.
//
// Source: PCI Local Bus 3.0, chapter 6; PCI Express Base 5.0, section 7.2.2 (ECAM).

#ifndef RINGSIDE_TESTS_GUEST_PCI_H_
#define RINGSIDE_TESTS_GUEST_PCI_H_

#include <cstdint>

namespace guest {

constexpr int kPciDevices = 32;
constexpr int kBars = 6;

namespace pci_register {
constexpr uint16_t kVendor = 0x00;
constexpr uint16_t kDevice = 0x02;
constexpr uint16_t kCommand = 0x04;
constexpr uint16_t kStatus = 0x06;
constexpr uint16_t kBar0 = 0x10;
constexpr uint16_t kCapabilities = 0x34;
constexpr uint16_t kInterruptPin = 0x3d;
}  // namespace pci_register

namespace pci_command {
constexpr uint16_t kIo = 0x001;
constexpr uint16_t kMemory = 0x002;
constexpr uint16_t kBusMaster = 0x004;
constexpr uint16_t kInterruptDisable = 0x400;
}  // namespace pci_command

namespace pci_capability {
constexpr uint8_t kVendorSpecific = 0x09;
constexpr uint8_t kMsix = 0x11;
}  // namespace pci_capability

enum class ConfigAccess { kNone, kEcam, kPorts };

// Looks for a bus. Where both ways to it are there, they must agree about the host bridge: prints a
// FAIL line if not.
ConfigAccess InitPci();

class PciFunction {
 public:
  constexpr PciFunction() = default;
  constexpr explicit PciFunction(int device) : device_(device) {}

  int device() const { return device_; }
  bool IsPresent() const;

  // T is uint8_t, uint16_t or uint32_t; `offset` is a multiple of its size.
  template <typename T>
  T Read(uint16_t offset) const;
  template <typename T>
  void Write(uint16_t offset, T value) const;

  // Offset of the first capability with this ID, or of the next one after the one at `after`; 0 if
  // there is none.
  uint8_t FindCapability(uint8_t id, uint8_t after = 0) const;

  // Memory BARs only. The size is 0 for a BAR that is not there or is the upper half of another.
  uint64_t BarAddress(int bar) const;
  uint64_t BarSize(int bar) const;
  // Writes the address, with memory decode on or off as it is.
  void SetBarAddress(int bar, uint64_t address) const;
  // The BAR's address, after giving it one if it has none that the guest can reach.
  uint64_t PlaceBar(int bar) const;

  uint16_t command() const { return Read<uint16_t>(pci_register::kCommand); }
  void SetCommand(uint16_t bits) const { Write<uint16_t>(pci_register::kCommand, bits); }

 private:
  bool Is64Bit(int bar) const;
  static uint16_t BarRegister(int bar) { return static_cast<uint16_t>(0x10 + 4 * bar); }

  int device_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_PCI_H_
