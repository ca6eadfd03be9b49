#include "devices/pci_function.h"

#include <algorithm>
#include <cassert>

#include "base/status.h"

namespace ringside {
namespace {

// Section 6.1, header type 0.
constexpr uint32_t kVendorId = 0x00;
constexpr uint32_t kDeviceId = 0x02;
constexpr uint32_t kRevisionAndClass = 0x08;
constexpr uint32_t kFirstBar = 0x10;
constexpr uint32_t kSubsystemVendorId = 0x2c;
constexpr uint32_t kSubsystemId = 0x2e;
constexpr uint32_t kCapabilitiesPointer = 0x34;
constexpr uint32_t kInterruptLine = 0x3c;
constexpr uint32_t kHeaderEnd = 0x40;

// Section 6.2.2.
constexpr uint16_t kMemorySpace = 1 << 1;
constexpr uint16_t kBusMaster = 1 << 2;
constexpr uint16_t kInterruptDisable = 1 << 10;
// Section 6.2.3.
constexpr uint16_t kInterruptStatus = 1 << 3;
constexpr uint16_t kCapabilitiesList = 1 << 4;

// What assertions hold.
[[maybe_unused]] constexpr uint64_t kMinBar = 4096;
[[maybe_unused]] constexpr uint64_t kMaxBar = uint64_t{1} << 31;

constexpr uint32_t BarOffset(size_t index) {
  return kFirstBar + static_cast<uint32_t>(index * sizeof(uint32_t));
}

}  // namespace

PciFunction::PciFunction(const Identity& identity) : capabilities_end_(kHeaderEnd) {
  Put(kVendorId, identity.vendor);
  Put(kDeviceId, identity.device);
  Put(kRevisionAndClass, identity.class_code << 8 | identity.revision);
  Put(kSubsystemVendorId, identity.subsystem_vendor);
  Put(kSubsystemId, identity.subsystem);
}

size_t PciFunction::Within(uint32_t offset, size_t size) {
  return offset < kConfigSize ? std::min(size, kConfigSize - offset) : 0;
}

void PciFunction::ReadConfig(uint32_t offset, std::span<std::byte> data) {
  const size_t size = Within(offset, data.size());
  std::ranges::fill(data.subspan(size), std::byte{0});
  if (size == 0) return;
  BeforeConfigRead(offset, size);
  std::copy_n(config_.begin() + offset, size, data.begin());
}

void PciFunction::WriteConfig(uint32_t offset, std::span<const std::byte> data) {
  const size_t size = Within(offset, data.size());
  if (size == 0) return;
  for (size_t i = 0; i < size; ++i) {
    const std::byte writable = writable_[offset + i];
    std::byte& byte = config_[offset + i];
    byte = (byte & ~writable) | (data[i] & writable);
  }
  AfterConfigWrite(offset, size);
}

void PciFunction::SetInterruptStatus(bool pending) {
  const auto others = static_cast<uint16_t>(Get<uint16_t>(kStatus) & ~kInterruptStatus);
  Put(kStatus, static_cast<uint16_t>(others | (pending ? kInterruptStatus : 0)));
}

PciFunction::ConfigState PciFunction::SaveConfig() const {
  ConfigState state;
  std::memcpy(state.bytes.data(), config_.data(), kConfigSize);
  state.bytes[kStatus] &= static_cast<uint8_t>(~kInterruptStatus);  // in its low byte
  return state;
}

absl::Status PciFunction::CheckConfig(const ConfigState& state) const {
  const ConfigState here = SaveConfig();
  for (size_t i = 0; i < kConfigSize; ++i) {
    const auto fixed = static_cast<uint8_t>(~std::to_integer<unsigned>(writable_[i]));
    if (((state.bytes[i] ^ here.bytes[i]) & fixed) == 0) continue;
    return BadInput(
        "byte %#x of the saved PCI configuration space is %#x; of this device the bits %#x are %#x",
        i, state.bytes[i], fixed, here.bytes[i] & fixed);
  }
  return absl::OkStatus();
}

absl::Status PciFunction::RestoreConfig(const ConfigState& state) {
  RINGSIDE_RETURN_IF_ERROR(CheckConfig(state));
  std::memcpy(config_.data(), state.bytes.data(), kConfigSize);
  return absl::OkStatus();
}

bool PciFunction::MastersBus() const {
  return (Get<uint16_t>(kCommand) & kBusMaster) != 0;
}

uint64_t PciFunction::BarAddress(size_t index) const {
  if ((Get<uint16_t>(kCommand) & kMemorySpace) == 0) return 0;
  // Its low bits say 32-bit, not prefetchable memory, which is 0 (section 6.2.5.1).
  return Get<uint32_t>(BarOffset(index));
}

void PciFunction::AssignBar(size_t index, uint64_t address) {
  assert(bars_[index].handler != nullptr && address % bars_[index].size == 0);
  Put(BarOffset(index), static_cast<uint32_t>(address));
}

void PciFunction::MakeWritable(uint32_t offset, uint16_t mask) {
  std::memcpy(&writable_[offset], &mask, sizeof mask);
}

void PciFunction::AddBar(size_t index, uint64_t size, IoHandler& handler) {
  assert(index < kBars && size >= kMinBar && size <= kMaxBar && (size & (size - 1)) == 0);
  bars_[index] = {size, &handler};
  // The bits below the size stay 0: so a BAR is sized by writing ones (section 6.2.5.1), and its
  // address is always a multiple of its size.
  const auto mask = static_cast<uint32_t>(~(size - 1));
  std::memcpy(&writable_[BarOffset(index)], &mask, sizeof mask);
  MakeWritable(kCommand, kMemorySpace | kBusMaster | kInterruptDisable);
  MakeWritable(kInterruptLine, 0x00ff);  // the pin, the byte above, is 0: there is no INTx
}

uint32_t PciFunction::AddCapability(uint8_t id, std::span<const std::byte> body,
                                    std::span<const std::byte> writable) {
  constexpr size_t kHead = 2;  // id and next
  const auto offset = static_cast<uint32_t>(capabilities_end_);
  if (body.size() + kHead > kConfigSize - offset) {
    assert(false);
    return 0;
  }
  uint32_t link = kCapabilitiesPointer;
  while (Get<uint8_t>(link) != 0) link = Get<uint8_t>(link) + 1;
  Put(link, static_cast<uint8_t>(offset));
  Put(offset, id);
  std::ranges::copy(body, config_.begin() + offset + kHead);
  std::ranges::copy(writable.first(std::min(writable.size(), body.size())),
                    writable_.begin() + offset + kHead);
  Put(kStatus, static_cast<uint16_t>(Get<uint16_t>(kStatus) | kCapabilitiesList));
  capabilities_end_ = (offset + kHead + body.size() + 3) & ~size_t{3};  // section 6.7
  return offset;
}

}  // namespace ringside
