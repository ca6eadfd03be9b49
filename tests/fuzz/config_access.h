// A guest's access to PCI configuration space, made of any eight bytes: how, device and function,
// register (two), value (four).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "devices/pci_host.h"
#include "tests/support/devices/pci_model.h"
#include "tests/support/registers.h"

namespace ringside::testing {

struct ConfigAccess {
  uint8_t write : 1;
  uint8_t by_ports : 1;
  uint8_t size : 2;         // its logarithm
  uint8_t near_window : 1;  // the value is made an address in or next to the PCI window
  uint8_t to_bar : 1;       // the register is made a BAR's
  uint8_t to_command : 1;
  uint8_t unaligned : 1;
  uint8_t function : 3;
  uint8_t device : 5;
  uint16_t offset;
  uint32_t value;

  void Do(PciHost& host) const;
};
static_assert(sizeof(ConfigAccess) == 8);

inline void ConfigAccess::Do(PciHost& host) const {
  uint64_t at = offset % 4096;
  if (to_bar) at = 0x10 + at % 24;
  if (to_command) at = 4;
  if (!unaligned) at &= ~uint64_t{3};
  uint64_t word = value;
  if (near_window) word = kWindow - kWindowSize / 2 + value % (2 * kWindowSize);
  // Eight bytes carry the value twice: two BARs at once.
  word = (word & 0xffffffff) << 32 | (word & 0xffffffff);
  std::array<std::byte, 8> data;
  std::memcpy(data.data(), &word, sizeof word);
  size_t bytes = size_t{1} << size;

  IoHandler* handler = &host.ecam();
  if (by_ports) {
    const auto address =
        static_cast<uint32_t>(0x80000000 | device << 11 | function << 8 | (at & 0xfc));
    WriteAs<uint32_t>(host.ports(), 0, address);
    handler = &host.ports();
    at = 4 + at % 4;
    bytes = std::min<size_t>(bytes, 8 - at);
  } else {
    at |= static_cast<uint64_t>(device << 15 | function << 12);
    at = std::min(at, PciHost::kEcamSize - bytes);
  }
  if (write) {
    handler->Write(at, std::span(data).first(bytes));
  } else {
    handler->Read(at, std::span(data).first(bytes));
  }
}

}  // namespace ringside::testing
