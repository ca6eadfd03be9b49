// An embedder's device behind its queues: what a request is, when it is shown, and who waits for
// it.
#include "devices/own_device.h"

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/support/allocation_counter.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using testing::FakeDriver;
using testing::RunOn;
using testing::SpinUntil;
using testing::UsedElement;

constexpr uint64_t kBuffers = 1 << 20;  // where tests have theirs

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
  testing::RecordingVirtioEvents events_;
  std::unique_ptr<OwnDevice> device_;
  HoldingDevice* own_ = nullptr;
  std::unique_ptr<Done> reset_;
  bool active_ = false;
};

TEST_F(OwnDeviceTest, ARequestHasTheBuffersOfItsChain) {
  Start();
  const uint16_t head = driver_.NewChain()
                            .AppendReadable(kBuffers, 16)
                            .AppendReadable(kBuffers + 4096, 3)
                            .AppendWritable(kBuffers + 8192, 512)
                            .AppendWritable(kBuffers + 12288, 1)
                            .Add();
  Publish();
  ASSERT_TRUE(WaitForHeld(1));
  OnQueue([&] {
    const Request& request = own_->held[0];
    EXPECT_TRUE(request.popped());
    ASSERT_EQ(request.readable().size(), 2u);
    EXPECT_EQ(request.readable()[0].data(), memory_->At(kBuffers, 16));
    EXPECT_EQ(request.readable()[1].size(), 3u);
    ASSERT_EQ(request.writable().size(), 2u);
    EXPECT_EQ(request.writable()[0].size(), 512u);
    EXPECT_EQ(request.writable()[1].data(), memory_->At(kBuffers + 12288, 1));
  });
  Answer(1, 100);
  const UsedElement used = NextUsed();
  EXPECT_EQ(used.head, head);
  EXPECT_EQ(used.written, 100u);
  EXPECT_EQ(device_->stats(0).bytes_read.Get(), 100u);
  EXPECT_EQ(device_->stats(0).bytes_written.Get(), 19u);
}

TEST_F(OwnDeviceTest, NoMoreWasWrittenThanThereIsRoomFor) {
  Start();
  HoldRequests(1, 512);
  Answer(1, 1 << 20);
  EXPECT_EQ(NextUsed().written, 512u);
}

TEST_F(OwnDeviceTest, WhatIsPushedIsShownOnceATurnOrWhenItIsNotified) {
  Start();
  HoldRequests(3);
  OnQueue([&] {
    queue().Push(own_->held[0], 0);
    EXPECT_FALSE(driver_.HasUsed());
    queue().Notify();
    EXPECT_TRUE(driver_.HasUsed());
    queue().Notify();
    queue().Push(own_->held[1], 0);
    queue().Push(own_->held[2], 0);
    own_->held.clear();
  });
  for (int i = 0; i < 3; ++i) NextUsed();
  OnQueue([] {});
  EXPECT_EQ(device_->stats(0).batches.Get(), 2u);
  EXPECT_EQ(call_.Clear(), 2u);
}

TEST_F(OwnDeviceTest, WhatIsPutBackIsPoppedAgainInItsOrder) {
  Start();
  HoldRequests(3);
  OnQueue([&] {
    std::vector<Request>& held = own_->held;
    EXPECT_FALSE(queue().PutBack(held[0])) << "newer ones are out";
    EXPECT_TRUE(held[0].popped());
    EXPECT_TRUE(queue().PutBack(held[2]));
    EXPECT_FALSE(held[2].popped());
    EXPECT_FALSE(queue().PutBack(held[2]));
    EXPECT_TRUE(queue().PutBack(held[1]));
    queue().Push(held[0], 1);
    held.clear();
  });
  ASSERT_TRUE(WaitForHeld(2));
  Answer(2, 2);
  const uint32_t first = NextUsed().head;
  const uint32_t second = NextUsed().head;
  const uint32_t third = NextUsed().head;
  EXPECT_THAT((std::vector{first, second, third}), ElementsAre(0, 2, 4));
}

TEST_F(OwnDeviceTest, NoneIsPutBackBehindOneThatWasPushed) {
  Start();
  HoldRequests(2);
  OnQueue([&] {
    queue().Push(own_->held[1], 0);
    EXPECT_FALSE(queue().PutBack(own_->held[0]));
    queue().Push(own_->held[0], 0);
    own_->held.clear();
  });
  NextUsed();
  NextUsed();
}

TEST_F(OwnDeviceTest, ATurnPopsNoMoreThanItsShare) {
  Start();
  for (int i = 0; i < 3; ++i) Add(0, 40 << 10);
  Publish();
  ASSERT_TRUE(WaitForHeld(3));
  OnQueue([&] { EXPECT_THAT(own_->per_run, ElementsAre(2, 1)); });
}

TEST_F(OwnDeviceTest, NothingIsAllocatedOnceItHasHadAsMany) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "this sanitizer has its own operator new";
  Start();
  HoldRequests(1);
  OnQueue([&] {
    Request kept = std::move(own_->held[0]);
    own_->held.clear();
    uint64_t before = 0;
    for (int i = 0; i < 3; ++i) {
      queue().Push(kept, 0);
      Add(16, 512);
      driver_.Publish();
      if (i == 1) before = testing::AllocationsOfThisThread();
      EXPECT_TRUE(queue().Pop(kept));
    }
    EXPECT_EQ(testing::AllocationsOfThisThread(), before);
    queue().Push(kept, 0);
  });
}

TEST_F(OwnDeviceTest, AMoveWaitsForWhatWasPopped) {
  Start();
  HoldRequests(2);
  const auto over = BeginMove(1);
  ASSERT_TRUE(SpinUntil([&] { return own_->recalls == 1; }));
  Answer(1);
  EXPECT_FALSE(over->HasBeenNotified());
  EXPECT_EQ(ThreadOfQueue(), IdOf(0));
  OnQueue([&] {
    Request request;
    EXPECT_FALSE(queue().Pop(request));
  });
  Answer(1);
  over->WaitOrAbort();
  EXPECT_EQ(ThreadOfQueue(), IdOf(1));
  NextUsed();
  NextUsed();
  HoldRequests(1);
}

TEST_F(OwnDeviceTest, ARestMayPutBackWhatItHasPopped) {
  own_->on_recall = [this](DeviceQueue& queue) { own_->PutAllBack(queue); };
  Start();
  HoldRequests(3);
  for (int round = 0; round < 20; ++round) {
    Done rests;
    device_->Pause(rests.task);
    rests.event.WaitOrAbort();
    EXPECT_EQ(device_->Position(0), 0);
    device_->Resume();
    ASSERT_TRUE(WaitForHeld(3));
  }
  Answer(3);
  for (int i = 0; i < 3; ++i) NextUsed();
}

TEST_F(OwnDeviceTest, AResetWaitsForWhatWasPoppedAndShowsNothing) {
  Start();
  HoldRequests(1);
  BeginReset();
  ASSERT_TRUE(SpinUntil([&] { return own_->recalls == 1; }));
  OnQueue([] {});
  EXPECT_FALSE(reset_->event.HasBeenNotified());
  Answer(1);
  reset_->event.WaitOrAbort();
  EXPECT_FALSE(driver_.HasUsed());
}

// As a thread of the device that has an answer, or something to receive, at any time.
TEST_F(OwnDeviceTest, WhatIsPostedRunsOnceWhileTheQueueMovesAndRests) {
  Start();
  HoldRequests(1);
  Answer(1);
  NextUsed();
  constexpr int kEach = 500;
  uint64_t sum = 0;  // without a lock: one runs at a time
  int last[2] = {0, 0};
  std::thread posters[2];
  for (int poster = 0; poster < 2; ++poster) {
    posters[poster] = std::thread([&, poster] {
      for (int i = 1; i <= kEach; ++i) {
        queue().Post([&sum, &last, poster, i] {
          EXPECT_EQ(std::exchange(last[poster], i), i - 1);
          ++sum;
        });
        if (i % 16 == 0) std::this_thread::yield();
      }
    });
  }
  for (size_t move = 1; move <= 30; ++move) {
    BeginMove(move % 2)->WaitOrAbort();
    Done rests;
    device_->Pause(rests.task);
    rests.event.WaitOrAbort();
    device_->Resume();
  }
  for (std::thread& poster : posters) poster.join();
  OnQueue([&] { EXPECT_EQ(sum, 2 * kEach); });
}

TEST_F(OwnDeviceTest, ADeviceThatIsNotInUseLetsGoOfAThread) {
  Start();
  HoldRequests(1);
  Answer(1);
  BeginReset();
  reset_->event.WaitOrAbort();
  device_->Place(0, *threads_[1]);
  device_->Forget(*threads_[0]);
  threads_[0].reset();
  EXPECT_EQ(ThreadOfQueue(), IdOf(1));
}

// A function waits in the mailbox of the thread that served the queue when it was posted.
TEST_F(OwnDeviceTest, WhatIsPostedFollowsTheQueue) {
  Start();
  HoldRequests(1);
  Answer(1);
  NextUsed();
  BeginReset();
  reset_->event.WaitOrAbort();
  BoundedEvent release, ran;
  threads_[0]->Begin([&] { release.WaitOrAbort(); });
  std::thread::id ran_on;
  queue().Post([&] {
    ran_on = std::this_thread::get_id();
    ran.Notify();
  });
  device_->Place(0, *threads_[1]);
  const int runs = own_->runs;
  FakeDriver next(*memory_, {.size = 64});
  next.NewChain().AppendReadable(kBuffers, 16).Add();
  next.Publish();
  device_->Activate(next.features(), {{next.Setup(0, kick_, line_)}}, events_);
  active_ = true;
  ASSERT_TRUE(SpinUntil([&] { return own_->runs > runs; }));
  release.Notify();
  ran.WaitOrAbort();
  EXPECT_EQ(ran_on, IdOf(1));
}

TEST_F(OwnDeviceTest, WhatWasPostedDoesNotOutliveTheDevice) {
  Start();
  HoldRequests(1);
  Answer(1);
  BeginReset();
  reset_->event.WaitOrAbort();
  BoundedEvent release;
  threads_[0]->Begin([&] { release.WaitOrAbort(); });
  const auto used = std::make_shared<int>(0);
  queue().Post([used] { ++*used; });
  device_.reset();
  EXPECT_EQ(used.use_count(), 1);
  release.Notify();
  RunOn(*threads_[0], [] {});
  EXPECT_EQ(*used, 0);
}

TEST_F(OwnDeviceTest, ADeviceThatFailsIsToBeReset) {
  Start();
  HoldRequests(2);
  OnQueue([&] {
    queue().Push(own_->held[0], 0);
    queue().Fail("the paper is out");
    queue().Fail("and the ink");
    EXPECT_TRUE(driver_.HasUsed()) << "what was answered before is the driver's";
    Request request;
    EXPECT_FALSE(queue().Pop(request));
    queue().Push(own_->held[1], 0);
    own_->held.clear();
  });
  EXPECT_THAT(events_.reasons(), ElementsAre("the paper is out"));
  EXPECT_EQ(device_->in_flight(), 0u);
}

TEST_F(OwnDeviceTest, AChainThatBreaksTheRulesIsToldOfOnce) {
  Start();
  HoldRequests(1);
  Answer(1);
  NextUsed();
  Add(16, 512);
  driver_.NewChain().AppendReadable(uint64_t{1} << 40, 16).Add();
  Publish();
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  OnQueue([&] {
    Request request;
    EXPECT_FALSE(queue().Pop(request));
    ASSERT_EQ(own_->held.size(), 1u);
  });
  EXPECT_THAT(events_.reasons(), ElementsAre("a buffer is empty or lies outside memory"));
}

TEST_F(OwnDeviceTest, WhatIsNotOutIsNotPushed) {
  Start();
  HoldRequests(1);
  OnQueue([&] {
    Request empty;
    queue().Push(empty, 0);
    queue().Push(own_->held[0], 0);
    queue().Push(own_->held[0], 0);
    own_->held.clear();
  });
  NextUsed();
  OnQueue([] {});
  EXPECT_FALSE(driver_.HasUsed());
  EXPECT_EQ(device_->in_flight(), 0u);
}

TEST(OwnDeviceCheckTest, NamesWhatADeviceCannotBe) {
  const auto check = [](auto change) {
    HoldingDevice device;
    change(device.shape);
    return OwnDevice::Check(device);
  };
  EXPECT_EQ(check([](auto&) {}), absl::OkStatus());
  EXPECT_EQ(check([](auto& shape) { shape.features = uint64_t{1} << 50 | 1 << 23; }),
            absl::OkStatus());
  EXPECT_EQ(check([](auto& shape) { shape.queue_size = 1024; }), absl::OkStatus());
  EXPECT_THAT(check([](auto& shape) { shape.id = 0; }), IsBadInput("ID 0", "1 to 63"));
  EXPECT_THAT(check([](auto& shape) { shape.id = 64; }), IsBadInput("ID 64", "1 to 63"));
  EXPECT_THAT(check([](auto& shape) { shape.pci_class = 1 << 24; }),
              IsBadInput("0x1000000", "24 bits"));
  EXPECT_THAT(check([](auto& shape) { shape.features = 1 << 24; }),
              IsBadInput("0x1000000", "0 to 23"));
  EXPECT_THAT(check([](auto& shape) { shape.queue_count = 0; }), IsBadInput("0 queues", "1 to 64"));
  EXPECT_THAT(check([](auto& shape) { shape.queue_count = 65; }),
              IsBadInput("65 queues", "1 to 64"));
  EXPECT_THAT(check([](auto& shape) { shape.queue_size = 96; }), IsBadInput("96", "power of two"));
  EXPECT_THAT(check([](auto& shape) { shape.queue_size = 2048; }),
              IsBadInput("2048", "up to 1024"));
}

}  // namespace
}  // namespace ringside
