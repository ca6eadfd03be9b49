// A driver of a device with several queues that keeps to no rule: any descriptors in any of its
// queues, while these move, and the device rests and is reset. Behind it comes one that keeps to
// the rules (FakeDriver). What else happens to the device is the fuzz target's.
#pragma once

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "devices/queued_device.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/wait.h"

namespace ringside::testing {

inline void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data, data + size) {}
  bool empty() const { return next_ >= data_.size(); }
  uint32_t Next(int bytes = 1) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | (empty() ? 0U : data_[next_++]);
    return value;
  }

 private:
  const std::vector<uint8_t> data_;
  size_t next_ = 0;
};

template <typename Device>
class QueuedDeviceRun {
 public:
  static constexpr uint16_t kQueues = 3;
  static constexpr uint16_t kSize = 16;
  static constexpr uint64_t kQueueMemory = 1 << 20;
  static constexpr uint64_t kMemorySize = 8 << 20;
  static constexpr uint64_t kBuffers = 4 << 20;

  static const GuestMemory& Memory() {
    static const std::unique_ptr<GuestMemory> memory = MakeMemory(kMemorySize);
    return *memory;
  }
  static IoThread& Thread(uint32_t which) {
    const auto make = [](IoThread::Waiter waiter) {
      auto thread = IoThread::Start("fuzz", waiter);
      return thread.ok() ? *std::move(thread) : *IoThread::Start("fuzz");
    };
    static const std::unique_ptr<IoThread> threads[] = {make(IoThread::Waiter::kEpoll),
                                                        make(IoThread::Waiter::kUring)};
    return *threads[which % 2];
  }

 protected:
  QueuedDeviceRun(const uint8_t* data, size_t size) : input_(data, size) {
    std::memset(Memory().At(0, kMemorySize), 0, kQueues * kQueueMemory);
    for (Queue& queue : queues_) queue.line.Connect(&queue.call);
  }

  virtual Device& device() = 0;

  struct Queue {
    std::optional<RawRing> ring;
    const EventFd kick = *EventFd::Create(), call = *EventFd::Create();
    std::atomic<uint8_t> isr{0};
    InterruptLine line{isr, 1};
    uint16_t available = 0;
  };

  // A driver that negotiates any of these features.
  void Start(std::span<const int> feature_bits) {
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < kQueues; ++i) {
      const RingPlace place(i * kQueueMemory, kSize);
      queues_[i].ring.emplace(Memory(), place);
      queues_[i].available = 0;
      setups.push_back({.index = i,
                        .size = kSize,
                        .descriptor_area = place.descriptors,
                        .driver_area = place.available,
                        .device_area = place.used,
                        .kick = &queues_[i].kick,
                        .call = &queues_[i].line});
    }
    const uint32_t bits = input_.Next();
    uint64_t features = kVirtioVersion1;
    for (const int bit : feature_bits) features |= uint64_t{bits >> (bit % 8) & 1} << bit;
    device().Activate(features, setups, events_);
  }
  void Reset() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device().Reset(task);
    done.WaitOrAbort();
  }
  // One that keeps to the rules: its drivers, by queue.
  std::vector<std::unique_ptr<FakeDriver>> StartInGoodOrder() {
    std::vector<std::unique_ptr<FakeDriver>> drivers;
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < kQueues; ++i) {
      drivers.push_back(std::make_unique<FakeDriver>(
          Memory(), FakeDriver::Options{.size = kSize, .address = i * kQueueMemory}));
      setups.push_back(drivers[i]->Setup(i, queues_[i].kick, queues_[i].line));
    }
    device().Activate(kVirtioVersion1, setups, events_);
    return drivers;
  }

  uint64_t Address() {
    const uint32_t choice = input_.Next(3);
    // Most are in memory, some are in the rings, or wrap.
    if (choice % 16 == 0) return ~uint64_t{0} - choice;
    return choice % 16 == 1 ? choice % (kQueues * kQueueMemory) : kBuffers + choice % kBuffers;
  }
  void SetDescriptor(Queue& queue) {
    const auto index = static_cast<uint16_t>(input_.Next() % kSize);
    const uint32_t length = input_.Next(3) % 70000;
    const auto flags = static_cast<uint16_t>(input_.Next() % 8);
    const auto next = static_cast<uint16_t>(input_.Next() % (kSize + 1));
    queue.ring->SetDescriptor(
        index, {.address = Address(), .length = length, .flags = flags, .next = next});
  }
  void Offer(Queue& queue, uint16_t head) {
    queue.ring->SetAvailableEntry(queue.available, head);
    queue.ring->SetAvailableIndex(++queue.available);
    queue.kick.Signal();
  }
  // One of the steps that all devices have in common; false: `op` is none of them.
  bool TakeStep(uint32_t op) {
    Queue& queue = queues_[op / 16 % kQueues];
    switch (op % 16) {
      case 0:
      case 1:
      case 2:
        SetDescriptor(queue);
        return true;
      case 3:
      case 4:
      case 5:
      case 6:
        Offer(queue, static_cast<uint16_t>(input_.Next() % (kSize + 1)));
        return true;
      case 7:
        queue.ring->SetAvailableIndex(static_cast<uint16_t>(input_.Next(2)));
        queue.kick.Signal();
        return true;
      case 12: {
        BoundedEvent done;
        device().MoveQueue(static_cast<uint16_t>(op / 16 % kQueues), Thread(input_.Next()),
                           [&](const absl::Status&) { done.Notify(); });
        done.WaitOrAbort();
        return true;
      }
      case 13: {
        BoundedEvent done;
        TaskOf task([&] { done.Notify(); });
        device().Pause(task);
        done.WaitOrAbort();
        for (uint16_t i = 0; i < kQueues; ++i) (void)device().Position(i);
        Check(device().CheckState(device().SaveState()).ok(), "any device can be saved");
        device().Resume();
        return true;
      }
      default:
        return false;
    }
  }

  FuzzInput input_;
  RecordingVirtioEvents events_;
  std::array<Queue, kQueues> queues_;
};

}  // namespace ringside::testing
