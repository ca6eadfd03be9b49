// A virtio entropy device: the host kernel's random numbers, so that a guest does not wait for
// randomness while it boots.
//
// Threads and ownership: as QueuedDevice.
// Limits: 64 KiB of a chain's buffers, the used length tells; one turn of the I/O thread gives out
// less than twice as much.
// Spec: VIRTIO 1.2, section 5.4.
#pragma once

#include <memory>

#include "devices/queued_device.h"

namespace ringside {

class VirtioRng final : public QueuedDevice {
 public:
  static constexpr uint16_t kQueueSize = 64;
  static constexpr uint32_t kMaxChainBytes = 64 << 10;

  VirtioRng(const GuestMemory& memory, IoThread& io_thread)
      : QueuedDevice(memory, {&io_thread}, {.size = kQueueSize}) {}

  uint16_t id() const override { return 4; }
  uint32_t pci_class() const override { return 0x00ff00; }  // none that fits
  uint64_t features() const override { return kVirtioRingIndirectDesc | kVirtioRingEventIdx; }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}

 private:
  std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override;
  std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override;
};

}  // namespace ringside
