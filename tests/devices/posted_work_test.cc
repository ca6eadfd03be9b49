// What an embedder's threads post to the queues of their device.
#include <gtest/gtest.h>

#include "tests/support/devices/own_device_fixture.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::FakeDriver;
using testing::kBuffers;
using testing::OwnDeviceTest;
using testing::RunOn;
using testing::SpinUntil;

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

}  // namespace
}  // namespace ringside
