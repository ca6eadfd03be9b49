// A device of the embedder's own (ringside/device.h) as a virtio device of the machine: its queues
// live as those of disks do, and each is a DeviceQueue to it.
//
// Threads and ownership: as QueuedDevice.
#pragma once

#include <memory>
#include <vector>

#include "devices/queued_device.h"
#include "ringside/device.h"

namespace ringside {

class OwnDevice final : public QueuedDevice {
 public:
  static constexpr uint16_t kMaxQueues = 64;

  // InvalidArgument if there can be no such device: its id, its class, its features, its queues.
  static absl::Status Check(const Device& device);
  // `device` has been checked. See QueuedDevice for the others.
  OwnDevice(std::unique_ptr<Device> device, const GuestMemory& memory,
            const std::vector<IoThread*>& io_threads, bool trace_latency);
  ~OwnDevice() override;

  void Forget(IoThread& io_thread) override;

  uint16_t id() const override { return device_->id(); }
  uint32_t pci_class() const override { return device_->pci_class(); }
  uint64_t features() const override;
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override;
  std::vector<uint8_t> SaveState() const override { return device_->SaveState(); }
  absl::Status CheckState(std::span<const uint8_t> state) const override {
    return device_->CheckState(state);
  }
  void RestoreState(std::span<const uint8_t> state) override { device_->RestoreState(state); }

 private:
  class Queue;
  class Worker;

  void Activated(uint64_t features) override { device_->Activated(features); }
  std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override;
  std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override;

  std::vector<std::unique_ptr<Queue>>
      own_queues_;  // outlive the device, whose threads post to them
  std::unique_ptr<Device> device_;
};

}  // namespace ringside
