// An embedder's device behind its queues: what a request is, when it is shown, and who waits for
// it.
#include <algorithm>
#include <gmock/gmock.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/devices/own_device_fixture.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using testing::HoldingDevice;
using testing::kBuffers;
using testing::OwnDeviceTest;
using testing::RunOn;
using testing::SpinUntil;
using testing::UsedElement;

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
  // With nothing left for the end of the turn.
  HoldRequests(1);
  OnQueue([&] {
    queue().Push(own_->held[0], 0);
    queue().Notify();
    own_->held.clear();
  });
  NextUsed();
  OnQueue([] {});
  EXPECT_EQ(device_->stats(0).batches.Get(), 3u);
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

// Until it goes on there is nothing of it elsewhere.
TEST_F(OwnDeviceTest, AQueueThatMovedAtItsRestIsStoppedWhereItWas) {
  Start();
  HoldRequests(1);
  std::thread::id recalled;
  own_->on_recall = [&](DeviceQueue& its_queue) {
    own_->PutAllBack(its_queue);
    recalled = std::this_thread::get_id();
  };
  Done rests;
  device_->Pause(rests.task);
  rests.event.WaitOrAbort();
  BeginMove(1)->WaitOrAbort();
  recalled = {};
  BeginReset();
  reset_->event.WaitOrAbort();
  EXPECT_EQ(recalled, IdOf(0));
  device_->Resume();
}

TEST_F(OwnDeviceTest, AResetWaitsForWhatWasPoppedAndShowsNothing) {
  Start();
  HoldRequests(1);
  BeginReset();
  ASSERT_TRUE(SpinUntil([&] { return own_->recalls == 1; }));
  OnQueue([] {});
  EXPECT_FALSE(reset_->event.HasBeenNotified());
  constexpr UsedElement kUntouched = {0x1234, 0x5678};
  driver_.ring().SetUsedElement(0, kUntouched);
  Answer(1);
  reset_->event.WaitOrAbort();
  EXPECT_FALSE(driver_.HasUsed());
  // The driver may have given the ring's memory to another use.
  EXPECT_EQ(driver_.ring().used_element(0), kUntouched);
}

// As a thread of the device that has an answer, or something to receive, at any time.
// A function waits in the mailbox of the thread that served the queue when it was posted.
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
