// An embedder's device on a queue, with the guest's side of it.
#pragma once

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "devices/own_device.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/wait.h"

namespace ringside::testing {

inline constexpr uint64_t kBuffers = 1 << 20;  // where tests have theirs

// Keeps what it pops until its test has it do something else.
class HoldingDevice final : public Device {
 public:
  uint16_t id() const override { return shape.id; }
  uint32_t pci_class() const override { return shape.pci_class; }
  uint64_t features() const override { return shape.features; }
  uint16_t queue_count() const override { return shape.queue_count; }
  uint16_t queue_size() const override { return shape.queue_size; }
  void Run(DeviceQueue& its_queue) override {
    queue = &its_queue;
    size_t popped = 0;
    for (Request request; its_queue.Pop(request); ++popped) held.push_back(std::move(request));
    per_run.push_back(popped);
    ++runs;
  }
  void Recall(DeviceQueue& its_queue) override {
    if (on_recall) on_recall(its_queue);
    ++recalls;
  }
  // As a device that receives does.
  void PutAllBack(DeviceQueue& its_queue) {
    for (; !held.empty(); held.pop_back()) EXPECT_TRUE(its_queue.PutBack(held.back()));
  }

  struct {
    uint16_t id = 2;
    uint32_t pci_class = 0x010000;
    uint64_t features = 0;
    uint16_t queue_count = 1;
    uint16_t queue_size = 256;
  } shape;
  std::function<void(DeviceQueue&)> on_recall;
  std::atomic<int> runs{0}, recalls{0};
  std::atomic<DeviceQueue*> queue{nullptr};
  // The I/O thread's.
  std::vector<Request> held;
  std::vector<size_t> per_run;
};

class OwnDeviceTest : public ::testing::Test {
 protected:
  OwnDeviceTest() {
    for (auto& thread : threads_) thread = *IoThread::Start("test");
    line_.Connect(&call_);
    auto own = std::make_unique<HoldingDevice>();
    own_ = own.get();
    device_ = std::make_unique<OwnDevice>(std::move(own), *memory_,
                                          std::vector<IoThread*>{threads_[0].get()}, false);
  }
  ~OwnDeviceTest() override {
    if (!active_) return;
    if (own_->queue != nullptr) {
      OnQueue([this] {
        for (Request& request : own_->held) queue().Push(request, 0);
      });
    }
    BeginReset();
    reset_->event.WaitOrAbort();
  }

  void Start() {
    device_->Activate(driver_.features(), {{driver_.Setup(0, kick_, line_)}}, events_);
    active_ = true;
  }
  void BeginReset() {
    active_ = false;
    reset_ = std::make_unique<Done>();
    device_->Reset(reset_->task);
  }
  uint16_t Add(uint32_t readable, uint32_t writable) {
    auto chain = driver_.NewChain();
    if (readable > 0) chain.AppendReadable(kBuffers, readable);
    if (writable > 0) chain.AppendWritable(kBuffers + (1 << 20), writable);
    return chain.Add();
  }
  void Publish() {
    driver_.Publish();
    if (driver_.NeedsKick()) kick_.Signal();
  }
  // Until the device holds so many, which it has from as many chains.
  void HoldRequests(size_t count, uint32_t writable = 512) {
    for (size_t i = 0; i < count; ++i) Add(16, writable);
    Publish();
    ASSERT_TRUE(WaitForHeld(count));
  }
  bool WaitForHeld(size_t count) {
    return SpinUntil([&] {
      if (own_->queue == nullptr) return false;
      size_t held = 0;
      OnQueue([&] { held = own_->held.size(); });
      return held == count;
    });
  }
  DeviceQueue& queue() { return *own_->queue; }
  template <typename Function>
  void OnQueue(Function function) {
    BoundedEvent done;
    queue().Post([&] {
      function();
      done.Notify();
    });
    done.WaitOrAbort();
  }
  std::thread::id ThreadOfQueue() {
    std::thread::id id;
    OnQueue([&] { id = std::this_thread::get_id(); });
    return id;
  }
  std::thread::id IdOf(size_t thread) {
    std::thread::id id;
    RunOn(*threads_[thread], [&] { id = std::this_thread::get_id(); });
    return id;
  }
  void Answer(size_t count, uint32_t written = 512) {
    OnQueue([&] {
      for (size_t i = 0; i < count; ++i) queue().Push(own_->held[i], written);
      own_->held.erase(own_->held.begin(), own_->held.begin() + static_cast<ptrdiff_t>(count));
    });
  }
  UsedElement NextUsed() {
    EXPECT_TRUE(SpinUntil([&] { return driver_.HasUsed(); }));
    return driver_.HasUsed() ? *driver_.TakeUsed() : UsedElement{};
  }
  std::unique_ptr<BoundedEvent> BeginMove(size_t thread) {
    auto over = std::make_unique<BoundedEvent>();
    device_->MoveQueue(0, *threads_[thread], [over = over.get()](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      over->Notify();
    });
    return over;
  }

  struct Done {
    BoundedEvent event;
    TaskOf<std::function<void()>> task{[this] { event.Notify(); }};
  };

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(64 << 20);
  std::unique_ptr<IoThread> threads_[2];
  FakeDriver driver_{*memory_, {.size = 64}};
  const EventFd kick_ = *EventFd::Create(), call_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  RecordingVirtioEvents events_;
  std::unique_ptr<OwnDevice> device_;
  HoldingDevice* own_ = nullptr;
  std::unique_ptr<Done> reset_;
  bool active_ = false;
};

}  // namespace ringside::testing
