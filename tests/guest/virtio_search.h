// Where this machine's virtio devices are: those on bus 0 of PCI, then the virtio-mmio devices that
// the command line tells of, as virtio_mmio.device=SIZE@ADDRESS:IRQ (Linux: admin-guide/
// kernel-parameters.txt), which VMMs append for every such device.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_SEARCH_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "command_line.h"
#include "virtio_mmio.h"
#include "virtio_pci.h"

namespace guest {

// Section 5.
enum class VirtioId : uint16_t { kNet = 1, kBlock = 2, kVsock = 19 };

// The word transport=pci or transport=mmio keeps the search from looking at the other. Before any.
void ChooseTransports(const CommandLine& command_line);

struct FoundPci {
  std::array<PciFunction, kPciDevices> functions;
  size_t count = 0;
};
struct FoundMmio {
  static constexpr size_t kMost = 32;
  std::array<MmioDevice, kMost> devices;
  size_t count = 0;
};
FoundPci FindOnPci(VirtioId id);
FoundMmio FindOnMmio(VirtioId id);

// Opens all devices of a kind that there is room for, by Device::Open(place, index); returns how
// many.
template <typename Device>
size_t OpenAll(VirtioId id, std::span<Device> devices) {
  size_t count = 0;
  const auto open = [&](const auto& place) {
    if (count == devices.size()) return;
    if (devices[count].Open(place, static_cast<int>(count))) ++count;
  };
  const FoundPci on_pci = FindOnPci(id);
  for (size_t i = 0; i < on_pci.count; ++i) open(on_pci.functions[i]);
  const FoundMmio on_mmio = FindOnMmio(id);
  for (size_t i = 0; i < on_mmio.count; ++i) open(on_mmio.devices[i]);
  return count;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_SEARCH_H_
