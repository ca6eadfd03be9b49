// A virtio socket device: streams between ports of the guest and programs of the host, which meet
// them at Unix sockets (net/vsock_host.h).
//
// Its queues share all they have (vsock_hub.h), so that one I/O thread serves them: one that moves
// takes the others with it.
//
// Threads and ownership: as QueuedDevice; the host's end outlives it.
// Spec: VIRTIO 1.2, section 5.10. Seqpacket sockets are not offered.
#pragma once

#include <memory>

#include "devices/queued_device.h"
#include "devices/vsock_hub.h"

namespace ringside {

class VirtioVsock final : public QueuedDevice {
 public:
  static constexpr uint16_t kQueueSize = 256;
  static constexpr uint16_t kReceive = 0, kTransmit = 1, kEvent = 2, kQueues = 3;
  static constexpr uint64_t kStreamFeature = 1;  // VIRTIO_VSOCK_F_STREAM

  static absl::StatusOr<std::unique_ptr<VirtioVsock>> Create(VsockHost& host,
                                                             const GuestMemory& memory,
                                                             IoThread& io_thread,
                                                             const VirtioVsockConfig& config);

  void MoveQueue(uint16_t queue, IoThread& to, QueueLife::MoveDone done) override;

  // A driver that was saved had connections, and they are not here: it is told.
  void RestoreState(std::span<const uint8_t> /*state*/) override { hub_->reset_notice().Owe(); }

  uint16_t id() const override { return 19; }
  uint32_t pci_class() const override { return 0x028000; }  // network, other
  uint64_t features() const override {
    return kVirtioRingIndirectDesc | kVirtioRingEventIdx | kStreamFeature;
  }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}

 private:
  VirtioVsock(std::unique_ptr<VsockHub> hub, const GuestMemory& memory, IoThread& io_thread,
              const VirtioVsockConfig& config)
      : QueuedDevice(memory, {&io_thread},
                     {.count = kQueues, .size = kQueueSize, .trace_latency = config.trace_latency}),
        cid_(config.cid),
        hub_(std::move(hub)) {}

  void MoveFrom(uint16_t queue, IoThread* from, IoThread& to, QueueLife::MoveDone done);

  std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override;
  std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override;

  const uint64_t cid_;
  const std::unique_ptr<VsockHub> hub_;
};

}  // namespace ringside
