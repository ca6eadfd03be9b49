// A BAR of a device that the guest has whole. What may be mapped is guest memory while the BAR is
// at an address; the rest costs an exit an access: pages that hold the MSI-X table or its pending
// bits, which are emulated, pages that the provider does not let be mapped, and BARs of less than a
// page.
//
// Threads: Read and Write from any vCPU's, also at once; the rest under the PciHost's lock.
// Ownership: the device, its mappings, the overlays' handlers and the DeviceMemory outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "devices/bus.h"
#include "devices/device_memory.h"
#include "vfio/pci_device.h"

namespace ringside {

class AssignedBar final : public IoHandler {
 public:
  // A part of the BAR that someone else answers for. Begins and ends at multiples of 8.
  struct Overlay {
    uint64_t offset;
    uint64_t size;
    IoHandler* handler;
  };

  AssignedBar(PciDevice& device, int index, std::vector<Overlay> overlays, DeviceMemory& memory,
              Logger log);
  ~AssignedBar() override { Unmap(); }
  AssignedBar(const AssignedBar&) = delete;
  AssignedBar& operator=(const AssignedBar&) = delete;

  // As the guest is shown it: a power of two, a page at least.
  static uint64_t GuestSize(uint64_t size);

  // The guest has put it at this address, or has taken it away from where it is.
  void Map(uint64_t address);
  void Unmap();

  void Read(uint64_t offset, std::span<std::byte> data) override;
  void Write(uint64_t offset, std::span<const std::byte> data) override;
  // Accesses that came here.
  uint64_t exits() const { return exits_.load(std::memory_order_relaxed); }

 private:
  struct Part {
    uint64_t offset;
    uint64_t size;
    std::byte* host;
  };

  // The whole pages of `area` that no overlay has a byte of.
  void MapArea(const MappableArea& area);
  void AddPart(uint64_t offset, uint64_t size);
  void SaySlow(std::string_view why) const;
  // Null if the device itself answers there.
  const Overlay* FindOverlay(uint64_t offset) const;
  void ReadPiece(uint64_t offset, std::span<std::byte> data);
  void WritePiece(uint64_t offset, std::span<const std::byte> data);

  PciDevice& device_;
  const int index_;
  const uint64_t size_;
  const std::vector<Overlay> overlays_;
  DeviceMemory& memory_;
  const Logger log_;
  std::vector<Part> parts_;
  std::vector<uint64_t> mapped_;  // the addresses at which parts are
  bool said_slow_ = false;
  std::atomic<uint64_t> exits_{0};
};

}  // namespace ringside
