// See virtio_pci.h.

#include "virtio_pci.h"

#include <algorithm>

#include "console.h"

namespace guest {
namespace {

// Section 4.1.4: capability types and the capability's layout.
constexpr uint8_t kCommonStructure = 1;
constexpr uint8_t kNotifyStructure = 2;
constexpr uint8_t kIsrStructure = 3;
constexpr uint8_t kDeviceStructure = 4;

constexpr uint16_t kType = 3;
constexpr uint16_t kBar = 4;
constexpr uint16_t kOffset = 8;
constexpr uint16_t kLength = 12;
constexpr uint16_t kNotifyMultiplier = 16;

}  // namespace

// Section 4.1.4: of several structures of a type the first is the preferred one.
void VirtioPci::ReadCapabilities() {
  common_ = notify_ = isr_ = device_ = {};
  constexpr uint8_t kId = pci_capability::kVendorSpecific;
  for (uint8_t at = function_.FindCapability(kId); at != 0;
       at = function_.FindCapability(kId, at)) {
    const Structure found = {.bar = function_.Read<uint8_t>(at + kBar),
                             .offset = function_.Read<uint32_t>(at + kOffset),
                             .length = function_.Read<uint32_t>(at + kLength),
                             .address = 0};
    if (found.bar >= kBars) continue;
    const auto type = function_.Read<uint8_t>(at + kType);
    if (type == kCommonStructure && common_.length == 0) common_ = found;
    if (type == kIsrStructure && isr_.length == 0) isr_ = found;
    if (type == kDeviceStructure && device_.length == 0) device_ = found;
    if (type == kNotifyStructure && notify_.length == 0) {
      notify_ = found;
      notify_multiplier_ = function_.Read<uint32_t>(at + kNotifyMultiplier);
    }
  }
}

void VirtioPci::FindAddresses() {
  for (Structure* structure : {&common_, &notify_, &isr_, &device_}) {
    structure->address = function_.BarAddress(structure->bar) + structure->offset;
  }
  msix_.FindTable();
}

bool VirtioPci::Open(const PciFunction& function) {
  InitMessages();
  function_ = function;
  ReadCapabilities();
  for (const Structure* structure : {&common_, &notify_, &isr_, &device_}) {
    if (structure->length == 0) return Expect("virtio: all four structures", 1, 0);
    function_.PlaceBar(structure->bar);
  }
  if (!msix_.Open(function_)) return Expect("virtio: MSI-X capability", 1, 0);
  first_slot_ = TakeMessageSlots(std::min<int>(msix_.size(), kMaxMessages));
  FindAddresses();
  function_.SetCommand(pci_command::kMemory | pci_command::kBusMaster |
                       pci_command::kInterruptDisable);
  return true;
}

uint64_t VirtioPci::OfferedFeatures() const {
  uint64_t features = 0;
  for (const uint32_t half : {0u, 1u}) {
    Store<uint32_t>(common_.address + common_config::kDeviceFeatureSelect, half);
    const auto bits = Load<uint32_t>(common_.address + common_config::kDeviceFeature);
    features |= uint64_t{bits} << (32 * half);
  }
  return features;
}

void VirtioPci::AcceptFeatures(uint64_t features) const {
  for (const uint32_t half : {0u, 1u}) {
    Store<uint32_t>(common_.address + common_config::kDriverFeatureSelect, half);
    Store<uint32_t>(common_.address + common_config::kDriverFeature,
                    static_cast<uint32_t>(features >> (32 * half)));
  }
}

void VirtioPci::EnableInterrupts() {
  msix_.Route(kConfigEntry, first_slot_ + kConfigEntry);
  msix_.SetEnabled(true);
  Store<uint16_t>(common_.address + common_config::kConfigVector, kConfigEntry);
}

uint16_t VirtioPci::MaxQueueSize(uint16_t queue) const {
  Store<uint16_t>(common_.address + common_config::kQueueSelect, queue);
  return Load<uint16_t>(common_.address + common_config::kQueueSize);
}

bool VirtioPci::EnableQueue(uint16_t queue, const Virtqueue& rings, uint32_t processor) {
  using namespace common_config;
  const uint64_t base = common_.address;
  const uint16_t entry = QueueEntry(queue);
  if (entry >= msix_.size()) return Expect("virtio: MSI-X entries", entry + 1u, msix_.size());
  msix_.Route(entry, QueueSlot(queue), processor);
  Store<uint16_t>(base + kQueueSelect, queue);
  Store<uint16_t>(base + kQueueSize, rings.size());
  const auto write = [base](uint64_t offset, uint64_t address) {
    Store<uint32_t>(base + offset, static_cast<uint32_t>(address));
    Store<uint32_t>(base + offset + 4, static_cast<uint32_t>(address >> 32));
  };
  write(kQueueDescriptors, rings.descriptor_area());
  write(kQueueDriver, rings.driver_area());
  write(kQueueDevice, rings.device_area());
  Store<uint16_t>(base + kQueueVector, entry);
  if (!Expect("virtio: queue's vector", entry, Load<uint16_t>(base + kQueueVector))) return false;
  notify_offset_[queue] = Load<uint16_t>(base + kQueueNotifyOffset);
  Store<uint16_t>(base + kQueueEnable, 1);
  return Expect("virtio: queue enabled", 1, Load<uint16_t>(base + kQueueEnable));
}

NotifyRegister VirtioPci::Notify(uint16_t queue) const {
  const uint64_t offset = uint64_t{notify_offset_[queue]} * notify_multiplier_;
  return {
      .address = notify_.address + offset, .value = queue, .width = NotifyRegister::Width::k16Bits};
}

}  // namespace guest
