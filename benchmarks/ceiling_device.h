// What this machine allows: a virtio-blk device served by the barest loop there can be. One thread
// spins on the available indices of all queues and does nothing else: it never sleeps, asks for no
// kick, trusts every byte of the guest (ceiling_ring.h), knows reads and writes only, takes no lock
// on its file and keeps no statistics but a few totals. No disk of any machine monitor on this host
// can be quicker by much. It is no product code, and none may be made of it.
//
// Threads: as VirtioDevice; requests are served on a thread of its own, there from Create on.
// Ownership: guest memory, the file and the counts outlive it. The counts belong to its thread
// until a reset is done. Limits: guest memory in one region at address 0, at most 1 GiB; the driver
// takes EVENT_IDX. Source: VIRTIO 1.2, section 5.2.
#pragma once

#include <atomic>
#include <cstdint>
#include <liburing.h>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/ceiling_ring.h"
#include "devices/guest_memory.h"

namespace ringside {

enum class CeilingEngine {
  kPread,    // pread and pwrite, right in the loop
  kIoUring,  // bare liburing on a registered file and registered guest memory
  kNull,     // no data is moved
};

struct CeilingCounts {
  uint64_t requests = 0;
  uint64_t errors = 0;
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t io_uring_enters = 0;
  int64_t cpu_ns = 0;  // of the serving thread while the device was active
};

class CeilingDevice final : public VirtioDevice {
 public:
  struct Config {
    CeilingEngine engine;
    int fd;         // of the file; unused by kNull
    uint64_t size;  // of the disk, in bytes
    uint16_t queues;
  };

  static absl::StatusOr<std::unique_ptr<CeilingDevice>> Create(const GuestMemory& memory,
                                                               const Config& config,
                                                               CeilingCounts& counts);
  ~CeilingDevice() override;

  uint16_t id() const override { return 2; }
  uint64_t features() const override;
  uint16_t queue_count() const override { return config_.queues; }
  uint32_t pci_class() const override { return 0x010000; }  // as VirtioBlk
  uint16_t max_queue_size(uint16_t) const override { return kQueueSize; }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}
  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& events) override;
  void Reset(Task& done) override;
  // It is never paused: its guest is all that its process has.
  void Pause(Task& done) override { done.Run(); }
  void Resume() override {}
  uint16_t Position(uint16_t) const override { return 0; }

 private:
  static constexpr uint16_t kQueueSize = 256;
  // kStopping is a state of its own: a thread that slept through an activation must see its end.
  enum class State { kIdle, kActive, kStopping, kQuit };

  CeilingDevice(const MemoryRegion& memory, const Config& config, CeilingCounts& counts)
      : memory_(memory), config_(config), counts_(counts) {}

  bool active() const { return state_.load(std::memory_order_acquire) == State::kActive; }
  void SetState(State state);

  // On the thread.
  absl::Status OpenUring();
  void Main();
  void Serve();
  void ServeNull();
  void ServePread();
  void ServeUring();
  void PushTaken(size_t queue, std::vector<BareRequest>& requests);
  size_t ReapUring(const std::vector<BareRequest>& requests);
  void Publish(BareRing& ring) { counts_.interrupts += ring.Publish() ? 1 : 0; }

  const MemoryRegion memory_;
  const Config config_;
  CeilingCounts& counts_;
  std::vector<QueueSetup> setups_;  // of the activation
  std::vector<BareRing> rings_;
  io_uring uring_ = {};
  bool has_uring_ = false;
  Task* reset_done_ = nullptr;
  std::atomic<State> state_{State::kIdle};
  std::thread thread_;
};

}  // namespace ringside
