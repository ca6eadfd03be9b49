// See disks.h.

#include "disks.h"

#include <array>

#include "console.h"

namespace guest {
namespace {

constexpr size_t kMaxDisks = 8;
static_assert(kMaxDisks * VirtioPci::kSlots < kMessageSlots, "a slot is left for other uses");

constinit CommandLine command_line("");
constinit std::array<VirtioBlk, kMaxDisks> disks;
size_t disk_count;
bool searched;

template <typename Device>
void AddDisk(const Device& device) {
  if (disk_count == kMaxDisks) return;
  if (disks[disk_count].Open(device, static_cast<int>(disk_count))) ++disk_count;
}

bool IsBlock(const PciFunction& function) {
  if (!function.IsPresent()) return false;
  if (function.Read<uint16_t>(pci_register::kVendor) != kVirtioVendor) return false;
  const auto device = function.Read<uint16_t>(pci_register::kDevice);
  return device == kVirtioBlockDevice || device == kVirtioBlockDeviceTransitional;
}

void FindOnPci() {
  if (InitPci() == ConfigAccess::kNone) return;
  for (int device = 0; device < kPciDevices; ++device) {
    const PciFunction function(device);
    if (IsBlock(function)) AddDisk(function);
  }
}

void FindOnMmio() {
  std::string_view word;
  for (size_t i = 0; !(word = command_line.GetNth("virtio_mmio.device", i)).empty(); ++i) {
    MmioDevice device;
    if (!device.Parse(word)) {
      Say("FAIL virtio_mmio.device: expected SIZE@ADDRESS:IRQ got ", word);
    } else if (device.IsBlock()) {
      AddDisk(device);
    }
  }
}

}  // namespace

void ChooseDisks(const CommandLine& line) {
  command_line = line;
  const std::string_view only = line.Get("transport");
  if (only != "" && only != "pci" && only != "mmio") {
    Say("FAIL transport: expected pci or mmio got ", only);
  }
}

std::span<VirtioBlk> Disks() {
  if (!searched) {
    searched = true;
    InitMessages();
    const std::string_view only = command_line.Get("transport");
    if (only != "mmio") FindOnPci();
    if (only != "pci") FindOnMmio();
  }
  return {disks.data(), disk_count};
}

}  // namespace guest
