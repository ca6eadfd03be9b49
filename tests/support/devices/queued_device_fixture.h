// A device with several queues on I/O threads, and the guest's side of each of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "devices/queued_device.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside::testing {

template <typename QueuedDeviceType>
class QueuedDeviceTest : public WaiterTest {
 protected:
  static constexpr uint16_t kRingSize = 64;
  // Each queue has this much memory for its rings, and as much for its buffers.
  static constexpr uint64_t kQueueMemory = 32 << 20;

  // A queue as the guest has it.
  struct Queue {
    Queue(const GuestMemory& memory, uint16_t index, bool event_idx, bool indirect)
        : driver(memory, {.size = kRingSize,
                          .address = 0x10000 + 2 * index * kQueueMemory,
                          .indirect = indirect,
                          .event_idx = event_idx}),
          buffers((2 * index + 1) * kQueueMemory) {
      line.Connect(&call);
    }
    FakeDriver driver;
    const uint64_t buffers;
    const EventFd kick = *EventFd::Create(), call = *EventFd::Create();
    std::atomic<uint8_t> isr{0};
    InterruptLine line{isr, 1};
    uint64_t kicks = 0;
    std::array<uint64_t, kRingSize> address_of{};  // by head
    uint32_t next = 0;
  };

  void TearDown() override {
    if (active_) Reset();
    device_.reset();
  }

  void StartThreads(const char* name, const PollConfig& poll) {
    for (auto& thread : threads_) {
      thread = *IoThread::Start(name, GetParam(), {.poll = poll});
    }
  }
  // As a driver that has just come, with new queues.
  void Activate(uint64_t features) {
    queues_.clear();
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < device_->queue_count(); ++i) {
      queues_.push_back(std::make_unique<Queue>(*memory_, i, event_idx_, indirect_));
      setups.push_back(queues_[i]->driver.Setup(i, queues_[i]->kick, queues_[i]->line));
    }
    Activate(features, setups);
  }
  void Activate(uint64_t features, const std::vector<QueueSetup>& setups) {
    device_->Activate(features | queues_[0]->driver.features(), setups, events_);
    active_ = true;
  }
  void Reset() {
    active_ = false;
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_->Reset(task);
    done.WaitOrAbort();
  }
  void Pause() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_->Pause(task);
    done.WaitOrAbort();
  }
  void Move(uint16_t queue, size_t thread) {
    BoundedEvent done;
    device_->MoveQueue(queue, *threads_[thread], [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      done.Notify();
    });
    done.WaitOrAbort();
  }

  std::byte* At(uint64_t address, uint64_t size) { return memory_->At(address, size); }
  void Publish(Queue& queue) {
    queue.driver.Publish();
    if (!queue.driver.NeedsKick()) return;
    ++queue.kicks;
    queue.kick.Signal();
  }
  // Receive buffers of one piece each, at places that are `place` bytes apart.
  void GiveBuffers(Queue& queue, size_t count, uint32_t size, uint64_t place) {
    for (size_t i = 0; i < count; ++i) {
      // Twice as many places as there can be buffers.
      const uint64_t address = queue.buffers + (queue.next++ % (2 * kRingSize)) * place;
      queue.address_of[queue.driver.NewChain().AppendWritable(address, size).Add()] = address;
    }
    Publish(queue);
  }
  // A chain to be read, `size` bytes at this place in so many pieces.
  static void AddReadable(Queue& queue, uint64_t address, size_t size, size_t pieces) {
    auto chain = queue.driver.NewChain();
    const size_t piece = (size + pieces - 1) / pieces;
    for (size_t at = 0; at < size; at += piece) {
      chain.AppendReadable(address + at, static_cast<uint32_t>(std::min(piece, size - at)));
    }
    chain.Add();
  }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(512 << 20);
  RecordingLog log_;
  RecordingVirtioEvents events_;
  bool event_idx_ = true;
  bool indirect_ = false;
  std::unique_ptr<IoThread> threads_[2];
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unique_ptr<QueuedDeviceType> device_;
  bool active_ = false;
};

}  // namespace ringside::testing
