// libFuzzer: any bytes as a guest's accesses to configuration space, through both mechanisms, on a
// host with three functions. After each the promises of tests/support/pci_model.h must hold.
//
// An access is eight bytes: how, device and function, register (two), value (four). Any bytes are
// accesses, so this target needs no seeds.
#include <cstdio>
#include <cstring>

#include "tests/support/pci_model.h"

namespace ringside {
namespace {

using testing::WriteAs;

struct Access {
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
};
static_assert(sizeof(Access) == 8);

void Do(Access access, PciHost& host) {
  uint64_t offset = access.offset % 4096;
  if (access.to_bar) offset = 0x10 + offset % 24;
  if (access.to_command) offset = 4;
  if (!access.unaligned) offset &= ~uint64_t{3};
  if (access.near_window) {
    access.value = static_cast<uint32_t>(testing::kWindow - testing::kWindowSize / 2 +
                                         access.value % (2 * testing::kWindowSize));
  }
  // Eight bytes carry the value twice: two BARs at once.
  const uint64_t value = uint64_t{access.value} << 32 | access.value;
  std::array<std::byte, 8> data;
  std::memcpy(data.data(), &value, sizeof value);
  size_t size = size_t{1} << access.size;

  IoHandler* handler = &host.ecam();
  if (access.by_ports) {
    const auto address = static_cast<uint32_t>(0x80000000 | access.device << 11 |
                                               access.function << 8 | (offset & 0xfc));
    WriteAs<uint32_t>(host.ports(), 0, address);
    handler = &host.ports();
    offset = 4 + offset % 4;
    size = std::min<size_t>(size, 8 - offset);
  } else {
    offset |= static_cast<uint64_t>(access.device << 15 | access.function << 12);
    offset = std::min(offset, PciHost::kEcamSize - size);
  }
  if (access.write) {
    handler->Write(offset, std::span(data).first(size));
  } else {
    handler->Read(offset, std::span(data).first(size));
  }
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  testing::PciModel model;
  // On from the start: of what is off there is little to find.
  for (uint32_t device = 1; device <= 3; ++device) {
    testing::WriteAs<uint8_t>(model.host.ecam(), device << 15 | 4, 2);
  }
  for (size_t at = 0; size - at >= sizeof(Access); at += sizeof(Access)) {
    Access access;
    std::memcpy(&access, data + at, sizeof access);
    // Three functions and the bridge, and seldom something that is not there.
    if (access.device >= 8) access.device %= 4;
    if ((access.value & 7) != 0) access.function = 0;
    Do(access, model.host);
    if (const std::string what = model.Broken(); !what.empty()) {
      std::fprintf(stderr, "broken promise: %s\n", what.c_str());
      __builtin_trap();
    }
  }
  return 0;
}
