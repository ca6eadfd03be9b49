#include "devices/pci_host.h"

#include <algorithm>
#include <cstring>

namespace ringside {
namespace {

constexpr uint32_t kFunctionSize = 4096;
constexpr uint32_t kAddressEnable = 0x80000000;
constexpr uint32_t kAddressBits = 0x80fffffc;  // the others read 0

// PCI 3.0 section 6.1.
constexpr size_t kVendorId = 0x00;
constexpr size_t kDeviceId = 0x02;
constexpr size_t kClassCode = 0x09;

void Put16(std::span<std::byte> config, size_t offset, uint16_t value) {
  std::memcpy(&config[offset], &value, sizeof value);
}

}  // namespace

PciHost::PciHost() {
  // Red Hat's generic PCIe host bridge: guests know it and expect nothing special of it.
  Put16(bridge_, kVendorId, 0x1b36);
  Put16(bridge_, kDeviceId, 0x0008);
  bridge_[kClassCode + 2] = std::byte{0x06};  // bridge, host
}

void PciHost::ReadConfig(uint32_t address, std::span<std::byte> data) const {
  const uint32_t function = address / kFunctionSize;
  const uint32_t offset = address % kFunctionSize;
  if (function != 0) {
    std::ranges::fill(data, std::byte{0xff});  // nobody answers
    return;
  }
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = offset + i < bridge_.size() ? bridge_[offset + i] : std::byte{0};
  }
}

void PciHost::Ports::Read(uint64_t offset, std::span<std::byte> data) {
  uint32_t address;
  {
    const MutexLock lock(mutex_);
    address = address_;
  }
  std::ranges::fill(data, std::byte{0xff});
  if (offset < 4) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    for (size_t i = 0; i < data.size() && offset + i < 4; ++i) data[i] = bytes[offset + i];
  } else if ((address & kAddressEnable) != 0) {
    // bus 23:16, device 15:11, function 10:8, register 7:2.
    host_.ReadConfig(((address & 0xffff00) << 4) | (address & 0xfc) | (offset - 4), data);
  }
}

void PciHost::Ports::Write(uint64_t offset, std::span<const std::byte> data) {
  // Only a full 32-bit write reaches the latch (PCI 3.0 section 3.2.2.3.2).
  if (offset != 0 || data.size() != sizeof(address_)) return;
  const MutexLock lock(mutex_);
  std::memcpy(&address_, data.data(), sizeof address_);
  address_ &= kAddressBits;
}

void PciHost::Ecam::Read(uint64_t offset, std::span<std::byte> data) {
  host_.ReadConfig(static_cast<uint32_t>(offset), data);
}

}  // namespace ringside
