// A virtio entropy device: the host kernel's random numbers, so that a guest does not wait for
// randomness while it boots.
//
// Threads: as VirtioDevice; the queue is served on one I/O thread.
// Limits: 64 KiB of a chain's buffers, the used length tells; one turn of the I/O thread gives out
// less than twice as much, so that a greedy guest cannot hog it.
// Ownership: guest memory and the I/O thread outlive it; it is reset before it goes.
// Source: VIRTIO 1.2, section 5.4.
#pragma once

#include <memory>

#include "devices/guest_memory.h"
#include "devices/virtio_device.h"

namespace ringside {

class VirtioRng final : public VirtioDevice {
 public:
  static constexpr uint16_t kQueueSize = 64;
  static constexpr uint32_t kMaxChainBytes = 64 << 10;

  VirtioRng(const GuestMemory& memory, IoThread& io_thread);
  ~VirtioRng() override;

  uint16_t id() const override { return 4; }
  uint64_t features() const override { return kVirtioRingIndirectDesc | kVirtioRingEventIdx; }
  uint16_t queue_count() const override { return 1; }
  uint16_t max_queue_size() const override { return kQueueSize; }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}
  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& events) override;
  void Reset(Task& done) override;

 private:
  class Queue;
  void Start();
  void Stop();

  const GuestMemory& memory_;
  IoThread& io_thread_;
  // Made by Activate, handed to the I/O thread by the post of start_, and back by the reset's done.
  std::unique_ptr<Queue> queue_;
  bool attached_ = false;
  Task* reset_done_ = nullptr;
  TaskTo<VirtioRng, &VirtioRng::Start> start_{*this};
  TaskTo<VirtioRng, &VirtioRng::Stop> stop_{*this};
};

}  // namespace ringside
