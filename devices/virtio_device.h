// A virtio device without its transport: what it offers, its configuration, and its queues once the
// driver is ready. The transport (virtio_transport.h) keeps status, features and queue addresses.
//
// Threads: called by the transport from vCPU threads and by whoever saves or resets it, one call at
// a time; Pause, Resume and Cancel from any, also at the same time as others. A Reset may come
// while it is paused, and be the last call. The device moves its work to I/O threads by itself.
// Spec: Virtual I/O Device (VIRTIO) 1.2, chapter 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "base/status.h"
#include "devices/interrupt.h"
#include "devices/pausable.h"
#include "devices/virtqueue.h"
#include "poll/io_thread.h"

namespace ringside {

// Feature bits of every device (section 6).
inline constexpr uint64_t kVirtioRingIndirectDesc = uint64_t{1} << 28;
inline constexpr uint64_t kVirtioRingEventIdx = uint64_t{1} << 29;
inline constexpr uint64_t kVirtioVersion1 = uint64_t{1} << 32;

// A queue as its driver set it up. All but the two descriptors is guest-controlled.
struct QueueSetup {
  uint16_t index = 0;
  uint16_t size = 0;  // a power of two, at most max_queue_size(index): the transport has checked
  uint64_t descriptor_area = 0;  // guest physical addresses (section 2.7)
  uint64_t driver_area = 0;
  uint64_t device_area = 0;
  uint16_t next = 0;  // Virtqueue::Layout::next
  const EventFd* kick = nullptr;
  InterruptLine* call = nullptr;
};

// The ring of a queue, with the features that were negotiated.
inline Virtqueue::Layout RingLayout(const QueueSetup& setup, uint64_t features) {
  return {.size = setup.size,
          .descriptor_area = setup.descriptor_area,
          .driver_area = setup.driver_area,
          .device_area = setup.device_area,
          .indirect = (features & kVirtioRingIndirectDesc) != 0,
          .event_idx = (features & kVirtioRingEventIdx) != 0,
          .next = setup.next};
}

// What a running device tells its transport. Any thread.
class VirtioEvents {
 public:
  virtual ~VirtioEvents() = default;
  // The driver broke the rules in a way that only a reset mends: sets DEVICE_NEEDS_RESET (section
  // 2.1.1), tells the driver, and logs `why` once.
  virtual void NeedsReset(std::string_view why) = 0;
  // The configuration space reads otherwise now: moves its generation on (section 2.5), and tells
  // the driver, if it has got as far as to be told.
  virtual void ConfigChanged() = 0;
};

class VirtioDevice : public Pausable {
 public:
  virtual uint16_t id() const = 0;        // section 5
  virtual uint64_t features() const = 0;  // offered, less VERSION_1, which is the transport's
  // What guests that look at PCI classes expect of such a device: 24 bits.
  virtual uint32_t pci_class() const = 0;
  virtual uint16_t queue_count() const = 0;
  virtual uint16_t max_queue_size(uint16_t queue) const = 0;  // a power of two

  // Device configuration; the whole access may lie beyond its end: reads zero then.
  virtual void ReadConfig(uint64_t offset, std::span<std::byte> data) = 0;
  // `features` are the negotiated ones, 0 before FEATURES_OK.
  virtual void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) = 0;

  // DRIVER_OK: `queues` are those the driver enabled. What they refer to stays until the reset is
  // done, as does `events`.
  virtual void Activate(uint64_t features, std::span<const QueueSetup> queues,
                        VirtioEvents& events) = 0;
  // Lets go of the queues, then runs `done`, on any thread, perhaps before it returns. Called only
  // after Activate, once for each.
  virtual void Reset(Task& done) = 0;

  // Once the machine is over, and a reset has begun: what can be given up need not be waited for.
  // Any thread.
  virtual void Cancel() {}

  // Pause, of Pausable, brings the queues to rest: nothing more is taken from them, what is in
  // flight is shown. Queues that are activated meanwhile rest at once; resets are as ever.
  //
  // While the device is active and paused: where this queue, one of those that were activated, goes
  // on in its ring. QueueSetup::next of another activation takes it.
  virtual uint16_t Position(uint16_t queue) const = 0;

  // FailedPrecondition while it has what no state holds. While the device is paused, or not active.
  virtual absl::Status CheckSaved() const { return absl::OkStatus(); }
  // What a driver sees or has set beside the transport's registers and its queues, in a form of the
  // device's own; of most there is nothing. While the device is paused, or not active.
  virtual std::vector<uint8_t> SaveState() const { return {}; }
  // InvalidArgument for what no device of this shape could have saved.
  virtual absl::Status CheckState(std::span<const uint8_t> state) const {
    if (state.empty()) return absl::OkStatus();
    return BadInput("the saved state of its own has %d bytes; this device has none", state.size());
  }
  // Of a device that is new, before it is activated; the state has been checked.
  virtual void RestoreState(std::span<const uint8_t> /*state*/) {}
};

}  // namespace ringside
