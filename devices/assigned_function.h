// A PCI device of the host that the guest has whole, as the guest sees it. docs/assignment.md has
// the table of what passes.
//
// Configuration space is Ringside's own, filled once from the device's: of what the guest writes
// only the bus master bit reaches the device. So no guest can move the host's BARs, reset the
// device or change how it talks to its bus. BARs are at the guest's addresses, see AssignedBar.
// MSI-X is emulated: all vectors are set up when the guest enables it, and masks are kept here,
// where a masked vector's eventfd keeps what came.
//
// Threads: as PciFunction; LeaveBus, any.
// Ownership: owns the device; platform and memory outlive it. All of the guest's memory that the
// device is to reach has been mapped for DMA before the guest runs. Teardown: stop the vCPUs,
// Stop(), then destroy it, before the memory that was mapped.
// Spec: PCI Local Bus 3.0, chapter 6; PCI Express Base 5.0, section 7.5.3.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/sync.h"
#include "devices/assigned_bar.h"
#include "devices/device_memory.h"
#include "devices/interrupt.h"
#include "devices/msix.h"
#include "devices/pci_function.h"
#include "vfio/pci_device.h"

namespace ringside {

class AssignedFunction final : public PciFunction {
 public:
  // FailedPrecondition for a device that no guest can have: a bridge, or one without MSI-X. No
  // device does DMA yet.
  static absl::StatusOr<std::unique_ptr<AssignedFunction>> Create(std::unique_ptr<PciDevice> device,
                                                                  PciPlatform& platform,
                                                                  DeviceMemory& memory, Logger log);

  PciDevice& device() { return *device_; }
  // Ends its DMA for good, whatever its driver asks for from now on. For any thread, also while the
  // guest runs: pulling the plug begins with it.
  void LeaveBus();
  // Ends its DMA and its interrupts, and resets it.
  void Stop();

  // Vectors that were enabled at the same time, at most.
  uint32_t most_vectors() const { return most_vectors_.load(std::memory_order_relaxed); }
  // Accesses to its BARs that left the guest.
  uint64_t exits() const;

  void BarMapped(size_t index, uint64_t address) override { bars_[index]->Map(address); }
  void BarUnmapped(size_t index, uint64_t /*address*/) override { bars_[index]->Unmap(); }

 private:
  // Where the device has its MSI-X table and pending bits.
  struct VectorPlace {
    uint32_t table;  // the capability's registers
    uint32_t pending_bits;
    uint32_t vectors;
  };

  AssignedFunction(std::unique_ptr<PciDevice> device, const Identity& identity,
                   std::unique_ptr<Msix> msix, const VectorPlace& place, DeviceMemory& memory,
                   Logger log);
  static absl::StatusOr<VectorPlace> FindVectors(PciDevice& device);
  static absl::Status CheckBars(PciDevice& device);
  std::vector<AssignedBar::Overlay> OverlaysOf(uint32_t bar, const VectorPlace& place);
  void AddBars(const VectorPlace& place, DeviceMemory& memory);
  void AddMsix(const VectorPlace& place);
  void AddExpress();

  void AfterConfigWrite(uint32_t offset, size_t size) override;
  void SetBusMaster(bool on);
  void WriteBusMaster(bool on) ABSL_EXCLUSIVE_LOCKS_REQUIRED(bus_mutex_);
  void ApplyMsixControl();
  void EnableVectors();
  void DisableVectors();
  void Complain(std::string_view what);

  const std::unique_ptr<PciDevice> device_;
  const Logger log_;
  const std::unique_ptr<Msix> msix_;
  std::array<std::unique_ptr<AssignedBar>, kBars> bars_;
  uint32_t msix_capability_ = 0;  // offset in configuration space
  Mutex bus_mutex_;
  bool bus_master_ ABSL_GUARDED_BY(bus_mutex_) = false;
  bool left_bus_ ABSL_GUARDED_BY(bus_mutex_) = false;  // for good
  bool msix_enabled_ = false;                          // by the guest
  bool vectors_enabled_ = false;                       // some of them, in the device
  bool complained_ = false;  // about vectors: the guest may ask again and again
  bool stopped_ = false;
  std::atomic<uint32_t> most_vectors_{0};
};

}  // namespace ringside
