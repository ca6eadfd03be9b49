#include "devices/pci_host.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "devices/state_check.h"

namespace ringside {
namespace {

constexpr uint32_t kFunctionSize = 4096;
constexpr uint32_t kFunctionsOfDevice = 8;
constexpr uint32_t kAddressEnable = 0x80000000;
constexpr uint32_t kConfigAddressBits = 0x80fffffc;  // the others read 0

// Red Hat's generic PCIe host bridge: guests know it and expect nothing special of it.
constexpr PciFunction::Identity kBridge = {.vendor = 0x1b36,
                                           .device = 0x0008,
                                           .subsystem_vendor = 0,
                                           .subsystem = 0,
                                           .class_code = 0x060000,
                                           .revision = 0};

constexpr uint64_t AlignUp(uint64_t address, uint64_t size) {
  return (address + size - 1) & ~(size - 1);
}

// The register that mechanism 1 selects, laid out as in ECAM: bus 23:16, device 15:11, function
// 10:8, register 7:2. `lane` is the port's offset in CONFIG_DATA.
std::optional<uint32_t> Selected(uint32_t config_address, uint64_t lane) {
  if ((config_address & kAddressEnable) == 0) return std::nullopt;
  return (config_address & 0xffff00) << 4 | (config_address & 0xfc) | static_cast<uint32_t>(lane);
}

// For people, by its vendor and device as configuration space begins with them; virtio's are in
// sections 4.1.2 and 5 of VIRTIO 1.2.
std::string FunctionName(uint32_t identity) {
  switch (identity) {
    case 0xffffffff:
      return "nothing";
    case 0x10411af4:
      return "a network";
    case 0x10421af4:
      return "a disk";
    case 0x10441af4:
      return "a source of entropy";
    case 0x10531af4:
      return "a vsock";
    default:
      return absl::StrFormat("a device %04x:%04x", identity & 0xffff, identity >> 16);
  }
}

}  // namespace

PciHost::PciHost(Bus& memory, uint64_t window_base, uint64_t window_size)
    : memory_(memory),
      window_base_(window_base),
      window_size_(window_size),
      bridge_(kBridge),
      assigned_end_(window_base) {
  functions_[0] = &bridge_;
}

absl::Status PciHost::Add(PciFunction& function, uint32_t home) {
  const MutexLock lock(mutex_);
  uint32_t number = home;
  while (functions_[number] != nullptr) {
    number = (number + 1) % kDevices;
    if (number != home) continue;
    return absl::ResourceExhaustedError(
        absl::StrFormat("a machine has room for %d PCI devices", kDevices - 1));
  }
  uint64_t end = assigned_end_;
  std::vector<PlacedBar> added;
  for (size_t index = 0; index < PciFunction::kBars; ++index) {
    const PciFunction::Bar& bar = function.bar(index);
    if (bar.handler == nullptr) continue;
    const uint64_t address = AlignUp(end, bar.size);
    if (!Forwards(address, bar.size)) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "the PCI memory window of %d bytes has no room for %d more", window_size_, bar.size));
    }
    function.AssignBar(index, address);
    added.push_back({.function = &function, .index = index});
    end = address + bar.size;
  }
  assigned_end_ = end;
  bars_.insert(bars_.end(), added.begin(), added.end());
  functions_[number] = &function;
  return absl::OkStatus();
}

PciHost::State PciHost::Save() const {
  const MutexLock lock(mutex_);
  State state = {.config_address = config_address_, .functions = {}};
  for (uint32_t number = 0; number < kDevices; ++number) {
    ReadConfig(number * kFunctionsOfDevice * kFunctionSize,
               std::as_writable_bytes(std::span(&state.functions[number], 1)));
  }
  return state;
}

absl::Status PciHost::Check(const State& state) const {
  RINGSIDE_RETURN_IF_ERROR(
      CheckBits("PCI configuration address", state.config_address, kConfigAddressBits));
  const State here = Save();
  for (uint32_t number = 0; number < kDevices; ++number) {
    if (state.functions[number] == here.functions[number]) continue;
    return BadInput(
        "PCI device %d was %s when the machine was saved, and is %s here: give the devices that "
        "'ringside snapshot info' lists, in that order",
        number, FunctionName(state.functions[number]), FunctionName(here.functions[number]));
  }
  return absl::OkStatus();
}

absl::Status PciHost::Restore(const State& state) {
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  const MutexLock lock(mutex_);
  config_address_ = state.config_address;
  MoveBars();
  return absl::OkStatus();
}

bool PciHost::Forwards(uint64_t address, uint64_t size) const {
  return address >= window_base_ && size <= window_size_ &&
         address - window_base_ <= window_size_ - size;
}

PciFunction* PciHost::Find(uint32_t address) const {
  const uint32_t number = address / kFunctionSize;
  // Device numbers beyond 31 would be buses beyond 0.
  if (number % kFunctionsOfDevice != 0) return nullptr;
  const uint32_t device = number / kFunctionsOfDevice;
  return device < kDevices ? functions_[device] : nullptr;
}

void PciHost::ReadConfig(uint32_t address, std::span<std::byte> data) const {
  if (PciFunction* function = Find(address)) {
    function->ReadConfig(address % kFunctionSize, data);
  } else {
    std::ranges::fill(data, std::byte{0xff});  // nobody answers
  }
}

void PciHost::WriteConfig(uint32_t address, std::span<const std::byte> data) {
  PciFunction* function = Find(address);
  if (function == nullptr) return;
  function->WriteConfig(address % kFunctionSize, data);
  MoveBars();
}

void PciHost::MoveBars() {
  // All that moves goes before anything comes, so that a place just left can be taken.
  for (PlacedBar& bar : bars_) {
    if (bar.address == 0 || bar.function->BarAddress(bar.index) == bar.address) continue;
    memory_.Remove(bar.address);
    bar.function->BarUnmapped(bar.index, bar.address);
    bar.address = 0;
  }
  for (PlacedBar& bar : bars_) {
    const auto& [size, handler] = bar.function->bar(bar.index);
    const uint64_t wanted = bar.function->BarAddress(bar.index);
    if (bar.address != 0 || !Forwards(wanted, size)) continue;
    // The bus refuses what overlaps; every later write comes back here.
    if (!memory_.Add(wanted, size, *handler).ok()) continue;
    bar.address = wanted;
    bar.function->BarMapped(bar.index, wanted);
  }
}

void PciHost::Ports::Read(uint64_t offset, std::span<std::byte> data) {
  const MutexLock lock(host_.mutex_);
  std::ranges::fill(data, std::byte{0xff});
  if (offset < 4) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&host_.config_address_);
    for (size_t i = 0; i < data.size() && offset + i < 4; ++i) data[i] = bytes[offset + i];
  } else if (const auto address = Selected(host_.config_address_, offset - 4)) {
    host_.ReadConfig(*address, data);
  }
}

void PciHost::Ports::Write(uint64_t offset, std::span<const std::byte> data) {
  const MutexLock lock(host_.mutex_);
  if (offset == 0 && data.size() == sizeof(host_.config_address_)) {
    // Only a full 32-bit write reaches the latch (PCI 3.0 section 3.2.2.3.2).
    std::memcpy(&host_.config_address_, data.data(), data.size());
    host_.config_address_ &= kConfigAddressBits;
  } else if (offset >= 4) {
    if (const auto address = Selected(host_.config_address_, offset - 4)) {
      host_.WriteConfig(*address, data);
    }
  }
}

void PciHost::Ecam::Read(uint64_t offset, std::span<std::byte> data) {
  const MutexLock lock(host_.mutex_);
  host_.ReadConfig(static_cast<uint32_t>(offset), data);
}

void PciHost::Ecam::Write(uint64_t offset, std::span<const std::byte> data) {
  const MutexLock lock(host_.mutex_);
  host_.WriteConfig(static_cast<uint32_t>(offset), data);
}

}  // namespace ringside
