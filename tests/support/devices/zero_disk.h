// A virtio device as an embedder would write one: a disk of zeroes. What it does not say is which
// threads serve it, how its queues start, stop and move, and what is counted of them.
#pragma once

#include <cstring>

#include "devices/answering_queue.h"
#include "devices/queued_device.h"

namespace ringside::testing {

class ZeroDisk final : public QueuedDevice {
 public:
  static constexpr uint64_t kSectors = 16384;

  ZeroDisk(const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
           const QueueConfig& config)
      : QueuedDevice(memory, io_threads, config) {}

  uint16_t id() const override { return 2; }
  uint32_t pci_class() const override { return 0x010000; }
  uint64_t features() const override { return kVirtioRingIndirectDesc | kVirtioRingEventIdx; }
  // The capacity (VIRTIO 1.2, section 5.2.4).
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    const uint64_t sectors = kSectors;
    for (size_t i = 0; i < data.size(); ++i, ++offset) {
      data[i] =
          offset < sizeof sectors ? static_cast<std::byte>(sectors >> (8 * offset)) : std::byte{0};
    }
  }
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}

 private:
  class Queue final : public AnsweringQueue {
   public:
    using AnsweringQueue::AnsweringQueue;

   private:
    // All of it zero, the status too, which is OK (section 5.2.6).
    uint32_t Serve(ChainBuffers& buffers) override {
      for (const Segment& segment : buffers.writable()) {
        std::memset(segment.host, 0, segment.length);
      }
      return static_cast<uint32_t>(TotalLength(buffers.writable()));
    }
  };

  std::unique_ptr<QueueWorker> NewWorker(uint16_t, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override {
    return std::make_unique<Queue>(parts, setup, features);
  }
  std::unique_ptr<QueueWorker> NextWorker(uint16_t, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override {
    return std::make_unique<Queue>(parts, before);
  }
};

}  // namespace ringside::testing
