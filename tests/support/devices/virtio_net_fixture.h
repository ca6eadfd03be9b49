// A virtio-net device on I/O threads, with the guest's side of its queues and the host's side of
// its network (tests/support/devices/socket_network.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "devices/virtio_net.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/devices/socket_network.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class VirtioNetTest : public ::testing::TestWithParam<IoThread::Waiter> {
 protected:
  static constexpr uint64_t kMerge = uint64_t{1} << 15;
  static constexpr uint64_t kControl = uint64_t{1} << 17;
  static constexpr uint64_t kMultiQueue = uint64_t{1} << 22;
  static constexpr uint64_t kGuestCsum = uint64_t{1} << 1;
  static constexpr uint16_t kRingSize = 64;
  static constexpr MacAddress kMac = {2, 1, 2, 3, 4, 5};
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

  void SetUp() override {
    if (GetParam() == IoThread::Waiter::kUring) {
      if (const absl::Status status = UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
    }
  }
  void TearDown() override {
    if (active_) Reset();
    device_.reset();
  }

  void Make(uint16_t pairs = 1, const PollConfig& poll = {}) {
    network_ = std::make_unique<SocketNetwork>(pairs);
    for (auto& thread : threads_) {
      thread = *IoThread::Start("net", GetParam(), {.poll = poll});
    }
    MakeDevice();
  }
  void MakeDevice() {
    device_ = std::make_unique<VirtioNet>(
        *network_, link_, *memory_, std::vector<IoThread*>{threads_[0].get()},
        VirtioNetConfig{.name = "net0", .mac = kMac, .throttle = &throttle_, .log = Logger(&log_)});
  }
  void Start(uint64_t features = kMerge | kControl) {
    if (network_ == nullptr) Make();
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

  Queue& rx(uint16_t pair = 0) { return *queues_[2 * pair]; }
  Queue& tx(uint16_t pair = 0) { return *queues_[2 * pair + 1]; }
  std::byte* At(uint64_t address, uint64_t size) { return memory_->At(address, size); }

  void Publish(Queue& queue) {
    queue.driver.Publish();
    if (!queue.driver.NeedsKick()) return;
    ++queue.kicks;
    queue.kick.Signal();
  }
  // Receive buffers of one piece each.
  void GiveBuffers(Queue& queue, size_t count, uint32_t size = 2048) {
    for (size_t i = 0; i < count; ++i) {
      // Twice as many places as there can be buffers.
      const uint64_t address = queue.buffers + (queue.next++ % (2 * kRingSize)) * 32768;
      queue.address_of[queue.driver.NewChain().AppendWritable(address, size).Add()] = address;
    }
    Publish(queue);
  }
  // A frame that has come in, header first, from as many buffers as it says to take.
  std::optional<std::vector<uint8_t>> NextReceived(Queue& queue, uint32_t* buffers = nullptr) {
    if (!SpinUntil([&] { return queue.driver.HasUsed(); })) return std::nullopt;
    std::vector<uint8_t> frame;
    uint32_t count = 1;
    for (uint32_t i = 0; i < count; ++i) {
      const std::optional<UsedElement> used = queue.driver.TakeUsed();
      if (!used.has_value()) return std::nullopt;
      const auto* bytes =
          reinterpret_cast<const uint8_t*>(At(queue.address_of[used->head], used->written));
      frame.insert(frame.end(), bytes, bytes + used->written);
      if (i == 0) count = frame[10] | frame[11] << 8;
    }
    if (buffers != nullptr) *buffers = count;
    return frame;
  }
  bool HasRoom(const Queue& queue) const { return queue.driver.free_descriptors() > 0; }
  void Add(Queue& queue, const std::vector<uint8_t>& frame, size_t pieces = 1) {
    const uint64_t address = queue.buffers + (queue.next++ % (2 * kRingSize)) * 131072;
    std::memcpy(At(address, frame.size()), frame.data(), frame.size());
    auto chain = queue.driver.NewChain();
    const size_t piece = (frame.size() + pieces - 1) / pieces;
    for (size_t at = 0; at < frame.size(); at += piece) {
      chain.AppendReadable(address + at, static_cast<uint32_t>(std::min(piece, frame.size() - at)));
    }
    chain.Add();
  }
  bool WaitForUsed(Queue& queue, size_t count = 1) {
    for (size_t i = 0; i < count; ++i) {
      if (!SpinUntil([&] { return queue.driver.HasUsed(); })) return false;
      queue.driver.TakeUsed();
    }
    return true;
  }
  // The answer to a command of the control queue.
  int Command(uint16_t queue_index, const std::vector<uint8_t>& command) {
    Queue& queue = *queues_[queue_index];
    std::ranges::copy(std::as_bytes(std::span(command)), At(queue.buffers, 4096));
    const uint64_t answer = queue.buffers + 4096;
    *At(answer, 1) = std::byte{0x55};
    auto chain = queue.driver.NewChain();
    if (!command.empty()) {
      chain.AppendReadable(queue.buffers, static_cast<uint32_t>(command.size()));
    }
    chain.AppendWritable(answer, 1).Add();
    Publish(queue);
    return WaitForUsed(queue) ? static_cast<int>(*At(answer, 1)) : -1;
  }
  std::vector<uint8_t> Config(size_t size = VirtioNet::kConfigSize) {
    std::vector<uint8_t> config(size);
    device_->ReadConfig(0, std::as_writable_bytes(std::span(config)));
    return config;
  }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(512 << 20);
  RecordingLog log_;
  RecordingVirtioEvents events_;
  DiskThrottle throttle_;
  NetLink link_;
  bool event_idx_ = true;
  bool indirect_ = false;
  std::unique_ptr<SocketNetwork> network_;
  std::unique_ptr<IoThread> threads_[2];
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unique_ptr<VirtioNet> device_;
  bool active_ = false;
};

}  // namespace ringside::testing
