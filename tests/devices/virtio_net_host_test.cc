// What becomes of a virtio-net device when its host does not take frames, limits them, refuses what
// the driver asks for, or is gone.
#include <gmock/gmock.h>

#include "net/stream_network.h"
#include "tests/support/devices/virtio_net_fixture.h"

namespace ringside {
namespace {

using testing::Body;
using ::testing::ElementsAre;
using testing::Frame;
using testing::FrameOf;
using ::testing::HasSubstr;
using testing::LetTurn;
using testing::SpinUntil;
using testing::VirtioNetTest;
using testing::WithHeader;

TEST_P(VirtioNetTest, WhatTheHostDoesNotTakeWaitsInTheRing) {
  Start();
  uint32_t sent = 0;
  // More than the socket has room for.
  constexpr uint32_t kFrames = 600;
  uint32_t received = 0;
  for (; sent < kFrames; ++sent) {
    while (!HasRoom(tx())) {
      if (tx().driver.TakeUsed().has_value()) continue;
      const auto got = network_->TryReceive();
      if (!got.has_value()) continue;
      ASSERT_EQ(Body(*got), FrameOf(received++, 16000));
    }
    Add(tx(), WithHeader(FrameOf(sent, 16000)));
    Publish(tx());
  }
  for (; received < kFrames; ++received) {
    const auto got = network_->Receive();
    ASSERT_TRUE(got.has_value());
    ASSERT_EQ(Body(*got), FrameOf(received, 16000));
  }
  EXPECT_EQ(device_->stats(1).errors.Get(), 0u);
}

TEST_P(VirtioNetTest, ANetworkThatGoesTakesItsLinkDownOnce) {
  Start();
  GiveBuffers(rx(), 4);
  LetTurn(*threads_[0]);
  network_->Close();
  ASSERT_TRUE(SpinUntil([&] { return events_.config_changes == 1; }));
  EXPECT_EQ(Config()[6], 0);
  for (uint32_t i = 0; i < 10; ++i) Add(tx(), WithHeader(FrameOf(i, 60)));
  Publish(tx());
  EXPECT_TRUE(WaitForUsed(tx(), 10));
  GiveBuffers(rx(), 4);
  LetTurn(*threads_[0]);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("net0: its network 'fake' is gone")));
  EXPECT_EQ(events_.config_changes, 1);
  ASSERT_TRUE(testing::SleepObserver(*threads_[0]).WaitUntilItSleeps());
  const uint64_t turns = threads_[0]->stats().turns.Get();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(threads_[0]->stats().turns.Get(), turns);
  device_->SetLink(true);
  EXPECT_EQ(Config()[6], 0) << "there is nothing to plug in";
}

// More frames than a turn carries, for which there were no buffers for so long that nobody looked
// at the host any more.
TEST_P(VirtioNetTest, FramesThatWaitedForLongAreAllDelivered) {
  constexpr uint32_t kFrames = 40;
  Start();
  GiveBuffers(rx(), 2, 16384);
  LetTurn(*threads_[0]);
  // All of them tell of themselves at once, while there are buffers.
  testing::RunOn(*threads_[0], [&] {
    for (uint32_t i = 0; i < kFrames; ++i) {
      EXPECT_TRUE(network_->Send(WithHeader(FrameOf(i, 9000))));
    }
  });
  LetTurn(*threads_[0], 1200);
  GiveBuffers(rx(), kFrames - 2, 16384);
  for (uint32_t i = 0; i < kFrames; ++i) {
    const auto got = NextReceived(rx());
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_EQ(Body(*got), FrameOf(i, 9000));
  }
}

// The host takes a part of a frame, and the next one has to wait for its limit.
TEST_P(VirtioNetTest, TheRestOfAFrameDoesNotWaitForTheNext) {
  constexpr size_t kSize = 60000;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd peer(ends[0]), own(ends[1]);
  const int small = 4096;
  ASSERT_EQ(setsockopt(own.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  const auto stream = *StreamNetwork::ByDescriptor(own.get());
  Make();
  device_ = std::make_unique<VirtioNet>(
      *stream, link_, *memory_, std::vector<IoThread*>{threads_[0].get()},
      VirtioNetConfig{.name = "net0", .throttle = &throttle_, .log = Logger(&log_)});
  ThrottleLimits limits;
  limits.bps_write = {.average = 1000, .max = 70000};
  throttle_.Set(limits);
  Start();
  Add(tx(), WithHeader(FrameOf(1, kSize)));
  Add(tx(), WithHeader(FrameOf(2, kSize)));
  Publish(tx());
  std::vector<uint8_t> got(4 + kSize);
  for (size_t at = 0; at < got.size();) {
    ASSERT_TRUE(testing::WaitForFd(peer.get(), POLLIN)) << at << " bytes have come";
    const ssize_t size = read(peer.get(), &got[at], got.size() - at);
    ASSERT_GT(size, 0);
    at += static_cast<size_t>(size);
  }
  EXPECT_EQ((Frame(got.begin() + 4, got.end())), FrameOf(1, kSize));
  EXPECT_EQ(device_->stats(1).writes.Get(), 1u);
  Reset();
  device_.reset();
}

TEST_P(VirtioNetTest, ADriverThatComesWhenTheNetworkIsGoneIsServed) {
  Make(2);
  network_->refuses = absl::UnavailableError("gone");
  Start(kMerge | kControl | kMultiQueue);
  EXPECT_EQ(Command(4, {0, 0, 1}), 0);
  Add(tx(), WithHeader(FrameOf(1, 60)));
  Publish(tx());
  EXPECT_TRUE(WaitForUsed(tx()));
  EXPECT_TRUE(events_.reasons().empty());
}

// Saved between two drivers, of which the next knows of one pair.
TEST_P(VirtioNetTest, ADriverOfOnePairHasOneWhateverWasSaved) {
  Make(3);
  Start(kMerge | kControl | kMultiQueue);
  EXPECT_EQ(Command(6, {4, 0, 3, 0}), 0);
  const std::vector<uint8_t> state = device_->SaveState();
  Reset();
  MakeDevice();
  device_->RestoreState(state);
  Start(kMerge | kControl);
  EXPECT_EQ(network_->last_pairs, 1);
  EXPECT_EQ(network_->last_too_soon, HostNetwork::TooSoon::kNever)
      << "a restore does not wait for what guests may do";
  Reset();
  Start(kMerge | kControl);
  EXPECT_EQ(network_->last_too_soon, HostNetwork::TooSoon::kWait);
}

// A fork has the address of what it was forked from, until its driver starts anew.
TEST_P(VirtioNetTest, WhoLooksIsToldTheSavedAddress) {
  Make();
  Start();
  std::vector<uint8_t> state = device_->SaveState();
  state[5] ^= 1;  // the last byte of it
  Reset();
  MakeDevice();
  device_->RestoreState(state);
  MacAddress saved = kMac;
  saved[5] ^= 1;
  EXPECT_EQ(link_.mac(), saved);
  Start();
  Reset();
  EXPECT_EQ(link_.mac(), kMac);
}

TEST_P(VirtioNetTest, ADeviceThatCannotBeSetUpNeedsAReset) {
  Make();
  network_->refuses = absl::InternalError("it does not change");
  Start();
  ASSERT_TRUE(SpinUntil([&] { return events_.reasons().size() == 1; }));
  EXPECT_THAT(events_.reasons().front(), HasSubstr("it does not change"));
  EXPECT_EQ(Command(2, {0, 0, 1}), 0) << "a driver waits for that without end";
  Move(0, 1);
  Move(0, 0);
  Add(tx(), WithHeader(FrameOf(9, 60)));
  Publish(tx());
  ASSERT_TRUE(SpinUntil([&] { return events_.reasons().size() == 2; }));
  EXPECT_FALSE(network_->TryReceive().has_value()) << "nothing of what was agreed holds";
  Reset();
  network_->refuses = absl::OkStatus();
  Start();
  Add(tx(), WithHeader(FrameOf(1, 60)));
  Publish(tx());
  EXPECT_TRUE(network_->Receive().has_value());
}

// What a driver has left behind.
TEST_P(VirtioNetTest, AKeptFrameIsNotForADriverThatHasAgreedToLess) {
  Make();
  network_->info_.offloads = kNetChecksum;
  for (const uint64_t next : {kMerge | kGuestCsum, kMerge | kControl}) {
    Start(kMerge | kGuestCsum);
    GiveBuffers(rx(), 1, 1536);
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 5000), 1)));
    ASSERT_TRUE(SpinUntil([&] { return !network_->HasUnread(); }));
    Reset();
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 5000))));
    Start(next);
    GiveBuffers(rx(), 20, 1536);
    const auto got = NextReceived(rx());
    ASSERT_TRUE(got.has_value());
    const bool agrees = (next & kGuestCsum) != 0;
    EXPECT_EQ(Body(*got), FrameOf(agrees ? 1 : 2, 5000));
    if (agrees) {
      EXPECT_TRUE(NextReceived(rx()).has_value());
    }
    Reset();
  }
  EXPECT_EQ(device_->stats(0).errors.Get(), 1u);
}

TEST_P(VirtioNetTest, AKeptFrameDoesNotPassAPulledLink) {
  Start();
  GiveBuffers(rx(), 1, 1536);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 5000))));
  ASSERT_TRUE(SpinUntil([&] { return !network_->HasUnread(); }));
  device_->SetLink(false);
  GiveBuffers(rx(), 20, 1536);
  ASSERT_TRUE(SpinUntil([&] { return device_->stats(0).errors.Get() == 1; }));
  device_->SetLink(true);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 5000))));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), FrameOf(2, 5000));
}

// Limits.

TEST_P(VirtioNetTest, EachDirectionHasItsLimit) {
  Make();
  ThrottleLimits limits;
  limits.iops_read.average = 100;
  limits.iops_write.average = 50;
  throttle_.Set(limits);
  Start();
  GiveBuffers(rx(), 40);
  const absl::Time start = absl::Now();
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 60))));
    if (i < 6) Add(tx(), WithHeader(FrameOf(i, 60)));
  }
  Publish(tx());
  for (uint32_t i = 0; i < 12; ++i) {
    const auto got = NextReceived(rx());
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(Body(*got), FrameOf(i, 60));
  }
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(95));
  ASSERT_TRUE(WaitForUsed(tx(), 6));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(95));
  EXPECT_GT(device_->stats(0).throttle.waited.Get(), 0u);
  EXPECT_GT(device_->stats(1).throttle.waited.Get(), 0u);
  throttle_.Set({});
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 60))));
    ASSERT_TRUE(NextReceived(rx()).has_value());
  }
}

// A frame is due every 10 ms, and the thread has something else to do for 90: more than a turn's.
// There are frames for longer, as the test's own thread may be late, too.
TEST_P(VirtioNetTest, LateWakeUpsTakeNothingFromTheLimits) {
  constexpr uint32_t kFrames = 60;
  Make();
  throttle_.Set({.iops_read = {.average = 100}, .iops_write = {.average = 100}});
  Start();
  GiveBuffers(rx(), kFrames);
  for (uint32_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 60))));
    Add(tx(), WithHeader(FrameOf(i, 60)));
  }
  Publish(tx());
  const auto frames = [&](uint16_t queue) {
    return device_->stats(queue).reads.Get() + device_->stats(queue).writes.Get();
  };
  const auto waited = [&](uint16_t queue) { return device_->stats(queue).throttle.waited.Get(); };
  ASSERT_TRUE(SpinUntil([&] { return waited(0) > 0 && waited(1) > 0; }));
  std::array<uint64_t, 2> frames_before = {}, waits_before = {};
  testing::RunOn(*threads_[0], [&] {
    frames_before = {frames(0), frames(1)};
    waits_before = {waited(0), waited(1)};
    absl::SleepFor(absl::Milliseconds(90));
  });
  for (const uint16_t queue : {0, 1}) {
    ASSERT_TRUE(SpinUntil([&] { return waited(queue) > waits_before[queue]; }));
    EXPECT_GE(frames(queue) - frames_before[queue], 8u) << "queue " << queue;
  }
}

TEST_P(VirtioNetTest, AResetPaysForNoFrame) {
  Make();
  throttle_.Set({.iops_read = {.average = 5}});
  const absl::Time start = absl::Now();
  for (uint32_t round = 0; round < 20; ++round) {
    Start();
    GiveBuffers(rx(), 4);
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(round, 60))));
    LetTurn(*threads_[0]);
    Reset();
  }
  const uint64_t frames = device_->stats(0).reads.Get();
  EXPECT_GE(frames, 1u);
  // The first two are before the limit is reached.
  EXPECT_LE(static_cast<double>(frames), 3 + 5 * absl::ToDoubleSeconds(absl::Now() - start));
}

}  // namespace
}  // namespace ringside
