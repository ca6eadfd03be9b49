// See virtio_search.h.

#include "virtio_search.h"

#include "console.h"

namespace guest {
namespace {

// Transitional devices, which have the structures of modern ones as well, are 0x1000 for a network
// and 0x1001 for a disk (section 4.1.2.1).
constexpr uint16_t kFirstTransitional = 0x1000;

constinit CommandLine command_line("");

bool IsVirtio(const PciFunction& function, VirtioId id) {
  if (!function.IsPresent()) return false;
  if (function.Read<uint16_t>(pci_register::kVendor) != kVirtioVendor) return false;
  const auto device = function.Read<uint16_t>(pci_register::kDevice);
  const auto number = static_cast<uint16_t>(id);
  return device == kVirtioModernDevices + number || device == kFirstTransitional + number - 1;
}

}  // namespace

void ChooseTransports(const CommandLine& line) {
  command_line = line;
  const std::string_view only = line.Get("transport");
  if (only != "" && only != "pci" && only != "mmio") {
    Say("FAIL transport: expected pci or mmio got ", only);
  }
}

FoundPci FindOnPci(VirtioId id) {
  FoundPci found;
  if (command_line.Get("transport") == "mmio" || InitPci() == ConfigAccess::kNone) return found;
  for (int device = 0; device < kPciDevices; ++device) {
    const PciFunction function(device);
    if (IsVirtio(function, id)) found.functions[found.count++] = function;
  }
  return found;
}

FoundMmio FindOnMmio(VirtioId id) {
  FoundMmio found;
  if (command_line.Get("transport") == "pci") return found;
  std::string_view word;
  for (size_t i = 0; !(word = command_line.GetNth("virtio_mmio.device", i)).empty(); ++i) {
    MmioDevice device;
    if (!device.Parse(word)) {
      Say("FAIL virtio_mmio.device: expected SIZE@ADDRESS:IRQ got ", word);
    } else if (device.Id() == static_cast<uint32_t>(id) && found.count < FoundMmio::kMost) {
      found.devices[found.count++] = device;
    }
  }
  return found;
}

}  // namespace guest
