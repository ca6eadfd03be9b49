// The status and feature machine of a virtio device, its queue registers and its interrupts, the
// same for every transport: virtio-pci maps registers onto it, and others could.
//
// Reset is asynchronous: a write of 0 starts it, and the status reads what it was until the device
// has let go of its queues; no vCPU waits for an I/O thread (section 2.4), but where the guest takes
// its bus mastering away (devices/virtio_pci.cc). What the driver writes
// meanwhile is ignored.
//
// Threads: all of it from any thread, also at once. One mutex guards the registers; NeedsReset and
// the end of a reset take it too. The device is never called with it held, but under a second one
// that makes its calls come one at a time, so it may call NeedsReset, or run the reset's `done`,
// from within.
// Ownership: the device, its I/O threads and the vectors outlive the transport. Once the vCPUs have
// stopped, ResetAndWait ends the device's use of everything here.
// Spec: VIRTIO 1.2, sections 2.1, 2.2, 2.4, 3.1.1 and 4.1.4.3.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log_limit.h"
#include "base/sync.h"
#include "devices/device_reports.h"
#include "devices/virtio_device.h"

namespace ringside {

class VirtioTransport final : private VirtioEvents {
 public:
  // Section 2.1.
  enum Status : uint8_t {
    kAcknowledge = 1,
    kDriver = 2,
    kDriverOk = 4,
    kFeaturesOk = 8,
    kNeedsReset = 64,
    kFailed = 128,
  };
  static constexpr uint8_t kDriverBits = kAcknowledge | kDriver | kDriverOk | kFeaturesOk | kFailed;
  static constexpr uint8_t kIsrQueue = 1;
  static constexpr uint8_t kIsrConfig = 2;
  static constexpr uint16_t kNoVector = 0xffff;

  struct Queue {
    uint16_t size = 0;  // 0: there is no such queue
    bool enabled = false;
    uint64_t descriptor_area = 0;
    uint64_t driver_area = 0;
    uint64_t device_area = 0;
    uint16_t vector = kNoVector;
  };
  enum class Half { kLow, kHigh };

  // Registers, and what tells whether another device is of the same shape. Whether the device is
  // active follows: it is, if DRIVER_OK is set and no enabled queue has an impossible area. Whether
  // interrupts go to vectors at all is the bus's.
  struct QueueState {
    uint16_t max_size = 0;
    uint16_t size = 0;
    uint16_t enabled = 0;  // 1 or 0
    uint64_t descriptor_area = 0;
    uint64_t driver_area = 0;
    uint64_t device_area = 0;
    uint16_t vector = kNoVector;
    uint16_t next = 0;  // Virtqueue::position(); 0 unless it is enabled and the device is active
    bool operator==(const QueueState&) const = default;
  };
  struct State {
    uint16_t device_id = 0;  // section 5
    uint8_t status = 0;
    uint8_t config_generation = 0;
    uint8_t isr = 0;
    uint16_t config_vector = kNoVector;
    std::array<uint32_t, 4> driver_features = {};
    std::vector<QueueState> queues;
    std::vector<uint8_t> device;  // VirtioDevice::SaveState
    bool operator==(const State&) const = default;
  };

  // `name` says in logs which device it is. `vectors` are the bus's message-signalled interrupts
  // that queues and configuration changes can be connected to.
  static absl::StatusOr<std::unique_ptr<VirtioTransport>> Create(
      VirtioDevice& device, std::string name, Logger log, std::vector<const EventFd*> vectors);
  ~VirtioTransport() override;
  VirtioTransport(const VirtioTransport&) = delete;
  VirtioTransport& operator=(const VirtioTransport&) = delete;

  // Who hears of a device that needs a reset, beside the driver and the log; null: nobody. Before a
  // driver is there.
  void ReportTo(DeviceReports* reports) { reports_ = reports; }

  VirtioDevice& device() { return device_; }
  uint16_t queue_count() const { return static_cast<uint16_t>(ports_.size()); }

  uint8_t status() const;
  // 0 resets. Otherwise bits are added, never taken away (a driver must not, section 2.1.1), except
  // that FEATURES_OK stays clear unless the features are acceptable, and DRIVER_OK unless
  // FEATURES_OK is set and FAILED is not. Setting DRIVER_OK activates the device.
  void SetStatus(uint8_t status);
  uint8_t config_generation() const;

  // 32 bits of the offered or accepted features. A driver's features are taken until FEATURES_OK.
  uint32_t DeviceFeatures(uint32_t select) const;
  uint32_t DriverFeatures(uint32_t select) const;
  void SetDriverFeatures(uint32_t select, uint32_t bits);

  // Set... is ignored if there is no such queue, and once it is enabled or the device is running. A
  // size that is not a power of two up to the device's maximum is ignored, so that the register
  // reads 0 or a power of two (section 4.1.4.3.1). The areas are checked at DRIVER_OK.
  Queue queue(uint16_t index) const;
  void SetQueueSize(uint16_t index, uint16_t size);
  void SetQueueAddress(uint16_t index, uint64_t Queue::* area, Half half, uint32_t bits);
  void EnableQueue(uint16_t index);

  // Which vector an interrupt goes to, also while the device runs. One that does not exist becomes
  // kNoVector (section 4.1.5.1.2).
  void SetQueueVector(uint16_t index, uint16_t vector);
  void SetConfigVector(uint16_t vector);
  uint16_t config_vector() const;
  // Whether the bus uses vectors at all. While it does not, as at first, interrupts only show in
  // the ISR status. Not changed by a reset.
  void EnableVectors(bool enabled);

  // Of a device that is paused, if it is active. FailedPrecondition while a reset is under way: its
  // end is not a driver's to wait for, so wait for ResetEnds.
  absl::StatusOr<State> Save() const;
  // Restore into a transport that is new, of a device that is paused: activates the device, with
  // its own state and each queue where it was. InvalidArgument for what no device of this
  // shape could have saved, FailedPrecondition if a driver has been here: nothing has changed then.
  // A queue that was broken is begun again where it broke.
  absl::Status Check(const State& state) const;
  absl::Status Restore(const State& state);

  // Device configuration.
  void ReadConfig(uint64_t offset, std::span<std::byte> data);
  void WriteConfig(uint64_t offset, std::span<const std::byte> data);

  // The eventfd that a kick of this queue signals; the index exists. Nothing here clears it: a kick
  // that a reset leaves behind costs the next activation one needless look.
  const EventFd& kick(uint16_t index) const { return ports_[index].kick; }
  // The ISR status (section 4.1.4.5). Relaxed: it says that something happened, and the ring or the
  // status, which a driver looks at next, has its own ordering.
  uint8_t isr() const { return isr_.load(std::memory_order_relaxed); }
  uint8_t TakeIsr() { return isr_.exchange(0, std::memory_order_relaxed); }

  // See VirtioEvents. Also before the device is activated: a driver may be reading it.
  void ConfigChanged() override;
  // The same, with `change` changing what the configuration space reads: no read of it comes
  // between that and the next generation, so a driver that finds one generation before and after
  // has read one configuration (section 2.5.1). `change` must not wait.
  void ChangeConfig(absl::FunctionRef<void()> change);

  // Resets as a driver would, or joins a reset that is under way, and waits for its end.
  void ResetAndWait();
  // Whether no reset is under way, or it ends within the limit.
  bool ResetEnds(absl::Duration limit);

 private:
  // What a queue has for good; its registers are in queues_.
  struct Port {
    Port(EventFd event, std::atomic<uint8_t>& isr) : kick(std::move(event)), call(isr, kIsrQueue) {}
    EventFd kick;
    InterruptLine call;
  };
  VirtioTransport(VirtioDevice& device, std::string name, Logger log,
                  std::vector<const EventFd*> vectors);

  void NeedsReset(std::string_view why) override;
  // Returns whether this is news.
  bool MarkNeedsReset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SignalConfig();
  void TellOfNeedsReset(std::string_view why);

  // Returns whether the device has to be reset first; the rest is FinishReset's.
  bool BeginReset() ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishReset() ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<Event> ResetUnderWay() const;  // null: none
  void ResetRegisters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the device has to be activated.
  bool AddStatus(uint8_t bits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Activate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the enabled queues.
  std::vector<QueueSetup> Setups() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why the queue cannot be used, if so. Whether its areas are in memory is for the device to find
  // out.
  static std::optional<std::string> FaultOf(uint16_t index, const Queue& queue);

  // Saved state: why no queue of it can be used, if so; and the steps of Check and Restore.
  static std::optional<std::string> FaultOf(const State& state);
  static bool Runs(const State& state);
  absl::Status CheckNew() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckRegisters(const State& state) const;
  absl::Status CheckQueue(const State& state, uint16_t index) const;
  absl::Status CheckVector(uint16_t vector) const;
  void RestoreRegisters(const State& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool resetting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reset_done_ != nullptr; }
  uint64_t offered() const { return device_.features() | kVirtioVersion1; }
  uint64_t driver_features() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Acceptable(const std::array<uint32_t, 4>& features) const;
  // Null unless the driver may write its registers now.
  Queue* Writable(uint16_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint16_t Valid(uint16_t vector) const;
  const EventFd* VectorEvent(uint16_t vector) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  VirtioDevice& device_;
  const std::string name_;
  const std::vector<const EventFd*> vectors_;
  std::atomic<uint8_t> isr_{0};
  std::deque<Port> ports_;  // by queue; constant once created
  InterruptLine config_interrupt_{isr_, kIsrConfig};
  TaskTo<VirtioTransport, &VirtioTransport::FinishReset> done_{*this};
  // A driver may break the device and reset it for ever: the log is the host's.
  static constexpr int kMaxComplaints = 10;
  LogLimit complaints_;
  DeviceReports* reports_ = nullptr;

  mutable Mutex calls_ ABSL_ACQUIRED_BEFORE(mutex_);  // one call of the device at a time
  mutable Mutex mutex_;
  uint8_t status_ ABSL_GUARDED_BY(mutex_) = 0;
  uint8_t config_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  bool vectors_enabled_ ABSL_GUARDED_BY(mutex_) = false;
  bool active_ ABSL_GUARDED_BY(mutex_) = false;  // from Activate to the end of the reset
  std::shared_ptr<Event> reset_done_ ABSL_GUARDED_BY(mutex_);             // of the reset under way
  std::array<uint32_t, 4> driver_features_ ABSL_GUARDED_BY(mutex_) = {};  // 128 bits (section 2.2)
  uint16_t config_vector_ ABSL_GUARDED_BY(mutex_) = kNoVector;
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
