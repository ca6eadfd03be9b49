// A virtio device that does nothing but hold its transport to the contract of VirtioDevice.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "devices/virtio_device.h"

namespace ringside::testing {

class FakeVirtioDevice final : public VirtioDevice {
 public:
  static constexpr uint16_t kId = 42;
  static constexpr uint64_t kFeatures = kVirtioRingIndirectDesc | kVirtioRingEventIdx | 1 << 9;
  static constexpr uint16_t kQueues = 3;
  static constexpr uint16_t kMaxSize = 256;
  static constexpr uint32_t kClass = 0x010000;

  uint16_t id() const override { return kId; }
  uint64_t features() const override { return kFeatures; }
  uint16_t queue_count() const override { return kQueues; }
  uint32_t pci_class() const override { return kClass; }
  uint16_t max_queue_size(uint16_t) const override { return kMaxSize; }

  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    const OneCall call(*this);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = offset + i < config.size() ? config[offset + i] : std::byte{0};
    }
  }
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override {
    const OneCall call(*this);
    config_write_features = features;
    for (size_t i = 0; i < data.size() && offset + i < config.size(); ++i) {
      config[offset + i] = data[i];
    }
  }

  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& transport_events) override {
    const OneCall call(*this);
    Check(!active.exchange(true), "one activation between resets");
    Check((features & kVirtioVersion1) != 0, "VERSION_1 is accepted");
    Check((features & ~(kFeatures | kVirtioVersion1)) == 0, "only what is offered is accepted");
    for (size_t i = 0; i < queues.size(); ++i) {
      CheckQueue(queues[i]);
      Check(i == 0 || queues[i].index > queues[i - 1].index, "a queue is set up once");
    }
    ++activations;
    accepted = features;
    setups.assign(queues.begin(), queues.end());
    for (const QueueSetup& queue : queues) positions[queue.index] = queue.next;
    events = &transport_events;
    if (on_activate) on_activate();
  }
  void Reset(Task& done) override {
    const OneCall call(*this);
    Check(active.exchange(false), "one reset for each activation");
    ++resets;
    on_reset(done);
  }

  void Pause(Task& done) override { done.Run(); }
  void Resume() override {}
  uint16_t Position(uint16_t queue) const override {
    Check(active, "only an active device has positions");
    const auto is_it = [queue](const QueueSetup& setup) { return setup.index == queue; };
    Check(std::ranges::any_of(setups, is_it), "only an activated queue has one");
    return positions[queue];
  }

  std::vector<uint8_t> SaveState() const override { return own_state; }
  absl::Status CheckState(std::span<const uint8_t> state) const override {
    return state.size() == own_state.size() && state[0] < 8 ? absl::OkStatus()
                                                            : BadInput("that is not its state");
  }
  void RestoreState(std::span<const uint8_t> state) override {
    Check(!active, "the device has its state again before it is activated");
    own_state.assign(state.begin(), state.end());
  }

  // Behaviour and records. To be set before, and read after, what the test does.
  std::function<void()> on_activate;
  std::function<void(Task&)> on_reset = [](Task& done) { done.Run(); };
  std::array<std::byte, 8> config{};
  std::vector<uint8_t> own_state = {0, 0};
  uint64_t config_write_features = ~uint64_t{0};
  int activations = 0;
  int resets = 0;
  uint64_t accepted = 0;
  std::vector<QueueSetup> setups;
  std::array<uint16_t, kQueues> positions{};  // what Position answers; Activate sets it
  VirtioEvents* events = nullptr;
  std::atomic<bool> active{false};

  // Aborts, since a fuzzer has no other way of saying so.
  static void Check(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
  }

 private:
  class OneCall {
   public:
    explicit OneCall(FakeVirtioDevice& device) : device_(device) {
      Check(!device_.in_call_.exchange(true), "the device is called once at a time");
    }
    ~OneCall() { device_.in_call_ = false; }

   private:
    FakeVirtioDevice& device_;
  };

  static void CheckQueue(const QueueSetup& queue) {
    Check(queue.index < kQueues, "the queue exists");
    Check(queue.size > 0 && queue.size <= kMaxSize, "the size is in range");
    Check((queue.size & (queue.size - 1)) == 0, "the size is a power of two");
    CheckArea(queue.descriptor_area, 16, uint64_t{16} * queue.size);
    CheckArea(queue.driver_area, 2, 6 + uint64_t{2} * queue.size);
    CheckArea(queue.device_area, 4, 6 + uint64_t{8} * queue.size);
    Check(queue.kick != nullptr && queue.call != nullptr, "the queue is connected");
  }
  static void CheckArea(uint64_t address, uint64_t alignment, uint64_t size) {
    Check(address % alignment == 0, "areas are aligned");
    Check(address + size >= address, "areas do not wrap");
  }

  std::atomic<bool> in_call_{false};
};

}  // namespace ringside::testing
