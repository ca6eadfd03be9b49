// A virtio network device: its configuration space and control queue, and its pairs of queues
// spread over I/O threads, in front of a network of the host.
//
// Queues come in pairs, receive and transmit, and behind them the control queue. Where it stands
// depends on the driver: behind all pairs for one that knows of several, behind the first for
// others.
//
// Threads: as QueuedDevice; SetLink from any, one call at a time.
// Ownership: as QueuedDevice; the network and the link outlive it.
// Spec: VIRTIO 1.2, section 5.1.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/sync.h"
#include "devices/net_port.h"
#include "devices/queued_device.h"

namespace ringside {

using MacAddress = std::array<uint8_t, 6>;

// What outlives a device that is made anew: whether there is a way to the host's network, and the
// address that the device gave its driver.
//
// Threads: any.
class NetLink {
 public:
  // Frames are carried: it is neither pulled nor lost. A load.
  const std::atomic<bool>& up() const { return up_; }
  // The device's own address, or the one with which it was saved: not what its driver makes of it,
  // so that who looks sees no more than two.
  MacAddress mac() const {
    const MutexLock lock(mutex_);
    return mac_;
  }
  void SetMac(const MacAddress& mac) {
    const MutexLock lock(mutex_);
    mac_ = mac;
  }
  // By its user.
  void Pull(bool pulled) {
    const MutexLock lock(mutex_);
    pulled_ = pulled;
    Update();
  }
  // For good. Whether it was there before.
  bool Lose() {
    const MutexLock lock(mutex_);
    const bool had = !std::exchange(lost_, true);
    Update();
    return had;
  }
  bool lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }

 private:
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    up_.store(!pulled_ && !lost_, std::memory_order_relaxed);
  }

  std::atomic<bool> up_{true};
  mutable Mutex mutex_;
  bool pulled_ ABSL_GUARDED_BY(mutex_) = false;
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  MacAddress mac_ ABSL_GUARDED_BY(mutex_) = {};
};

struct VirtioNetConfig {
  std::string name;  // in logs
  MacAddress mac = {};
  uint16_t mtu = 0;  // that the driver is told; 0: none
  bool trace_latency = false;
  DiskThrottle* throttle = nullptr;  // null: it has no limits
  Logger log;
};

class VirtioNet final : public QueuedDevice, private NetOwner {
 public:
  static constexpr uint16_t kMaxPairs = 8;
  static constexpr uint16_t kQueueSize = 256;
  static constexpr size_t kConfigSize = 12;  // as far as the driver may read something

  // `io_threads`: of each pair; its two queues have one. The control queue has the first pair's.
  VirtioNet(HostNetwork& network, NetLink& link, const GuestMemory& memory,
            const std::vector<IoThread*>& io_threads, const VirtioNetConfig& config);
  ~VirtioNet() override;

  // The user pulls the cable, or plugs it in: for VirtioTransport::ChangeConfig, whose call follows
  // the network's SetCarrier.
  void SetLink(bool up);

  uint16_t pairs_in_use() const { return pairs_.load(std::memory_order_relaxed); }

  std::vector<uint8_t> SaveState() const override;
  absl::Status CheckState(std::span<const uint8_t> state) const override;
  void RestoreState(std::span<const uint8_t> state) override;

  uint16_t id() const override { return 1; }
  uint32_t pci_class() const override { return 0x020000; }  // network, Ethernet
  uint64_t features() const override;
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override;
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}

 private:
  class Control;
  struct Config;
  struct State;

  // What a queue of this number is for a driver with these features.
  enum class Role { kReceive, kTransmit, kControl, kNone };
  Role RoleOf(uint16_t queue, uint64_t features) const;
  // Who serves such a queue instead of an I/O thread; null: nobody does.
  VhostNet* VhostOf(uint16_t queue, Role role) const;
  // What a pair's queue that receives has of the limits: made with the first of them.
  NetGate& ReceiveGate(uint16_t pair, QueueStats& stats);
  Config MakeConfig() const;
  uint16_t max_pairs() const { return network_.info().pairs; }
  void SetMac(const MacAddress& mac);
  absl::Status SetPairs(uint16_t pairs, HostNetwork::TooSoon too_soon);
  absl::Status Unusable() const;
  void NetworkGone(VirtioEvents& events) override;

  void Activated(uint64_t features) override;
  void ResetBegins() override;
  std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                         const QueueSetup& setup, uint64_t features) override;
  std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                          QueueWorker& before) override;

  HostNetwork& network_;
  NetLink& link_;
  const MacAddress own_mac_;
  const uint16_t mtu_;
  const std::string name_;
  const Logger log_;
  DiskThrottle unlimited_;
  NetPort port_;
  std::array<std::optional<NetGate>, kMaxPairs> receive_gates_;  // each its queue's I/O thread's
  // The rest is changed by the driver, through the control queue or by activating the device, and
  // read on vCPUs, too. Relaxed: each is a value by itself.
  std::atomic<uint64_t> mac_;           // its bytes, the first one lowest
  std::atomic<bool> announces_{false};  // asks the driver to make itself known
  std::atomic<uint16_t> pairs_{1};
  uint64_t features_ = 0;                          // while it is active
  std::optional<uint16_t> restored_pairs_;         // for the activation that follows
  mutable Mutex mutex_;                            // a queue may move while the device is activated
  absl::Status unusable_ ABSL_GUARDED_BY(mutex_);  // why no frames are carried
};

}  // namespace ringside
