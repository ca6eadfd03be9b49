// Where a device's interrupts go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/sync.h"

namespace ringside {

// One interrupt of a device: an eventfd that may be exchanged while the device runs, or none.
//
// Threads: Signal on the device's I/O thread, Connect on any vCPU's, Observe on any.
// Ownership: the events outlive the line; a signal may still reach the one that was exchanged.
class InterruptLine {
 public:
  // Who hands the eventfd on, to another process that serves the queue, and so has to know.
  class Observer {
   public:
    // The line's event from now on; null: none, and signals have to come through Signal. One call
    // at a time, on the thread of Connect or Observe; must not wait.
    virtual void EventChanged(const EventFd* event) = 0;

   protected:
    ~Observer() = default;
  };

  // Without an event, Signal sets `bits` of `status` (virtio's ISR status, 1.2 section 4.1.4.5).
  InterruptLine(std::atomic<uint8_t>& status, uint8_t bits) : status_(status), bits_(bits) {}

  void Signal() const {
    // Acquire: pairs with Connect, whose caller may just have made the event.
    if (const EventFd* event = event_.load(std::memory_order_acquire)) {
      event->Signal();
    } else {
      status_.fetch_or(bits_, std::memory_order_relaxed);
    }
  }
  void Connect(const EventFd* event) {
    const MutexLock lock(mutex_);
    event_.store(event, std::memory_order_release);
    if (observer_ != nullptr) observer_->EventChanged(event);
  }
  // Tells it of the event that there is, and of each to come; null: nobody any more, and the one
  // before is not being called.
  void Observe(Observer* observer) {
    const MutexLock lock(mutex_);
    observer_ = observer;
    if (observer != nullptr) observer->EventChanged(event_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<const EventFd*> event_{nullptr};
  std::atomic<uint8_t>& status_;
  const uint8_t bits_;
  Mutex mutex_;
  Observer* observer_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// The way of one MSI-X vector to the guest. While masked, the event keeps what was signalled, which
// is the vector's pending bit.
//
// Threads: one at a time.
class MsiVector {
 public:
  explicit MsiVector(EventFd event) : event_(std::move(event)) {}
  virtual ~MsiVector() = default;

  const EventFd& event() const { return event_; }
  // Delivers from now on, what is pending first. `address` and `data` are the message, as the guest
  // wrote it. Of a vector that is unmasked already: exchanges the message.
  virtual void Unmask(uint64_t address, uint32_t data) = 0;
  virtual void Mask() = 0;

 private:
  const EventFd event_;
};

// What a PCI function needs of the machine around it. Implemented over KVM in vmm/.
class PciPlatform {
 public:
  virtual ~PciPlatform() = default;
  // Masked.
  virtual absl::StatusOr<std::unique_ptr<MsiVector>> NewMsiVector() = 0;
  // A write of any size at `address` signals `kick` without leaving the kernel. May fail (the
  // address taken by something else): the write then reaches the function's handler.
  virtual absl::Status AddDoorbell(uint64_t address, const EventFd& kick) = 0;
  virtual void RemoveDoorbell(uint64_t address, const EventFd& kick) = 0;
};

}  // namespace ringside
