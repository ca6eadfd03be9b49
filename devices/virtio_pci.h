// A virtio device on the PCI bus, modern interface only: decodes registers onto VirtioTransport,
// and connects its interrupts to MSI-X vectors and its kicks to doorbells.
//
// BAR 0 has one structure a page, so that the pages that cost an exit are told from the notify
// page, on which there are only doorbells.
//
// Threads: as PciFunction; BAR accesses from any vCPU's, also at once. The selectors are a guest's
// to guard: it sets one and then accesses what it selects.
// Ownership: device and platform outlive it. Teardown: stop the vCPUs, transport().ResetAndWait(),
// then destroy it, which takes back the doorbells that are still there.
// Spec: VIRTIO 1.2, section 4.1.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "devices/interrupt.h"
#include "devices/msix.h"
#include "devices/pci_function.h"
#include "devices/virtio_transport.h"

namespace ringside {

class VirtioPci final : public PciFunction, private IoHandler {
 public:
  // BAR 0.
  static constexpr uint64_t kPageSize = 4096;
  static constexpr uint64_t kCommonPage = 0 * kPageSize;
  static constexpr uint64_t kIsrPage = 1 * kPageSize;
  static constexpr uint64_t kDevicePage = 2 * kPageSize;
  static constexpr uint64_t kNotifyPage = 3 * kPageSize;
  static constexpr uint64_t kTablePage = 4 * kPageSize;
  static constexpr uint64_t kPendingPage = 5 * kPageSize;
  static constexpr uint64_t kBarSize = 8 * kPageSize;
  static constexpr uint64_t kDoorbellSize = 4;  // the notify capability's multiplier

  // Configuration space, which has the access window's registers too, and what is behind BAR 0.
  // Doorbells and the interrupts' ways follow from these.
  struct State {
    ConfigState config;
    Msix::State msix;
    VirtioTransport::State transport;
    uint32_t device_feature_select = 0;
    uint32_t driver_feature_select = 0;
    uint16_t queue_select = 0;
    bool operator==(const State&) const = default;
  };

  // One vector for configuration changes and one a queue. `name` says in logs which device it is.
  static absl::StatusOr<std::unique_ptr<VirtioPci>> Create(VirtioDevice& device, std::string name,
                                                           PciPlatform& platform, Logger log);
  ~VirtioPci() override;

  VirtioTransport& transport() { return *transport_; }

  // While no vCPU runs; see VirtioTransport::Save and Restore, whose errors they have, for what
  // state the device must be in. Restore is into a function that is new and on its PciHost, whose
  // own Restore comes behind it. Nothing has changed if it is refused.
  absl::StatusOr<State> Save() const;
  absl::Status Check(const State& state) const;
  absl::Status Restore(const State& state);

  void BarMapped(size_t index, uint64_t address) override;
  void BarUnmapped(size_t index, uint64_t address) override;

 private:
  VirtioPci(const Identity& identity, std::string name, PciPlatform& platform, Logger log,
            std::unique_ptr<Msix> msix, std::unique_ptr<VirtioTransport> transport);
  void AddCapabilities();

  // BAR 0.
  void Read(uint64_t offset, std::span<std::byte> data) override;
  void Write(uint64_t offset, std::span<const std::byte> data) override;
  void ReadCommon(uint64_t offset, std::span<std::byte> data) const;
  void WriteCommon(uint64_t offset, std::span<const std::byte> data);
  void WriteAddress(uint64_t offset, std::span<const std::byte> data);
  void WriteStatus(uint8_t status);
  void Notify(uint64_t offset);

  // Configuration space.
  void BeforeConfigRead(uint32_t offset, size_t size) override;
  void AfterConfigWrite(uint32_t offset, size_t size) override;
  // The part of BAR 0 that the access window shows: its length, or 0 if the guest chose nonsense.
  size_t Window(uint64_t& offset) const;
  void ApplyMsixControl();
  void ApplyBusMaster();
  void RemoveDoorbells();

  const std::string name_;
  PciPlatform& platform_;
  const Logger log_;
  const std::unique_ptr<Msix> msix_;
  const std::unique_ptr<VirtioTransport> transport_;
  uint32_t msix_capability_ = 0;    // offsets in configuration space
  uint32_t window_capability_ = 0;  // VIRTIO_PCI_CAP_PCI_CFG

  // Relaxed: nothing else hangs on them.
  std::atomic<uint32_t> device_feature_select_{0};
  std::atomic<uint32_t> driver_feature_select_{0};
  std::atomic<uint16_t> queue_select_{0};

  // Of the doorbells that are added: where, and of which queues. Under the PciHost's lock.
  uint64_t doorbells_at_ = 0;
  std::vector<uint16_t> doorbells_;
  bool said_no_doorbell_ = false;
  bool mastered_bus_ = false;  // after the last write to the command register
  // The reset under way has not been waited for in vain. The driver's writes to the status are not
  // under that lock.
  std::atomic<bool> is_patient_{true};
};

}  // namespace ringside
