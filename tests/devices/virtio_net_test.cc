// A virtio-net device between its driver and a host whose side is a socket: frames each way, what
// becomes of those that do not fit, commands, and who is left alone when there is nothing to do.
#include <gmock/gmock.h>

#include "tests/support/devices/virtio_net_fixture.h"

namespace ringside {
namespace {

using testing::Body;
using ::testing::ElementsAre;
using testing::Frame;
using testing::FrameOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LetTurn;
using ::testing::SizeIs;
using testing::SpinUntil;
using testing::VirtioNetTest;
using testing::WithHeader;

TEST_P(VirtioNetTest, SendsAFrameOfManyPieces) {
  Start();
  const Frame frame = WithHeader(FrameOf(1, 1514), 1);
  Add(tx(), frame, 7);
  Publish(tx());
  EXPECT_EQ(network_->Receive(), frame) << "header and all";
  EXPECT_TRUE(WaitForUsed(tx()));
  EXPECT_EQ(device_->stats(1).writes.Get(), 1u);
  EXPECT_EQ(device_->stats(1).bytes_written.Get(), 1514u);
}

TEST_P(VirtioNetTest, ReceivesIntoOneBuffer) {
  Start();
  GiveBuffers(rx(), 4);
  const Frame sent = FrameOf(2, 1514);
  ASSERT_TRUE(network_->Send(WithHeader(sent)));
  uint32_t buffers = 0;
  const auto got = NextReceived(rx(), &buffers);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), sent);
  EXPECT_EQ(buffers, 1u);
  EXPECT_TRUE(SpinUntil([&] { return rx().call.count() > 0; }));
  EXPECT_EQ(device_->stats(0).reads.Get(), 1u);
  EXPECT_EQ(device_->stats(0).bytes_read.Get(), 1514u);
}

// The first is longer than was expected, the second is expected to be.
TEST_P(VirtioNetTest, ALongFrameTakesSeveralBuffers) {
  Start();
  GiveBuffers(rx(), 60, 1536);
  for (uint32_t number = 1; number < 4; ++number) {
    const Frame sent = FrameOf(number, number == 2 ? 20000 : 8000);
    ASSERT_TRUE(network_->Send(WithHeader(sent)));
    uint32_t buffers = 0;
    const auto got = NextReceived(rx(), &buffers);
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(Body(*got), sent);
    EXPECT_EQ(buffers, (sent.size() + kNetHeaderSize + 1535) / 1536);
  }
}

TEST_P(VirtioNetTest, TheLongestFramesGoBothWays) {
  Start();
  GiveBuffers(rx(), 60, 1536);
  const Frame sent = FrameOf(9, kMaxFrame - kNetHeaderSize);
  ASSERT_TRUE(network_->Send(WithHeader(sent)));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), sent);
  Add(tx(), WithHeader(sent), 32);
  Add(tx(), WithHeader(FrameOf(10, kMaxFrame - kNetHeaderSize + 1)), 16);
  Publish(tx());
  EXPECT_EQ(network_->Receive(), WithHeader(sent));
  EXPECT_TRUE(WaitForUsed(tx(), 2));
  EXPECT_EQ(device_->stats(1).errors.Get(), 1u) << "one byte too many";
}

TEST_P(VirtioNetTest, WithoutMergedBuffersWhatDoesNotFitIsDropped) {
  Start(kControl);
  GiveBuffers(rx(), 4);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 4000), 0x55)));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 2036), 0x55)));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), FrameOf(2, 2036));
  EXPECT_EQ((Frame(got->begin(), got->begin() + 12)), (Frame{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}))
      << "the guest does not compute checksums, so nothing is left to it (5.1.6.4.1)";
  EXPECT_EQ(device_->stats(0).errors.Get(), 1u);
}

TEST_P(VirtioNetTest, WhatTheHostLeavesToTheGuestIsInTheHeader) {
  Make();
  network_->info_.offloads = kNetChecksum;
  Start(kMerge | kGuestCsum);
  GiveBuffers(rx(), 1);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 100), 1)));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->front(), 1);
}

TEST_P(VirtioNetTest, ALongFrameWaitsForBuffers) {
  Start();
  GiveBuffers(rx(), 2, 1536);
  const Frame sent = FrameOf(3, 9000);
  ASSERT_TRUE(network_->Send(WithHeader(sent)));
  ASSERT_TRUE(SpinUntil([&] { return !network_->HasUnread(); }));
  EXPECT_FALSE(rx().driver.HasUsed());
  GiveBuffers(rx(), 2, 1536);
  GiveBuffers(rx(), 4, 1536);
  uint32_t buffers = 0;
  const auto got = NextReceived(rx(), &buffers);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), sent);
  EXPECT_EQ(buffers, 6u);
}

// A guest that never has as much room goes on with what fits.
TEST_P(VirtioNetTest, AFrameForWhichThereAreNeverBuffersIsDropped) {
  Start();
  GiveBuffers(rx(), 2, 1536);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 9000))));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 100))));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), FrameOf(2, 100));
  EXPECT_EQ(device_->stats(0).errors.Get(), 1u);
}

// More pieces than one system call takes: there is room in the ring, and yet none.
TEST_P(VirtioNetTest, AFrameForBuffersInTooManyPiecesIsDropped) {
  indirect_ = true;
  Start();
  for (int i = 0; i < 40; ++i) {
    const uint64_t address = rx().buffers + (rx().next++) * 32768;
    auto chain = rx().driver.NewChain();
    for (int piece = 0; piece < 32; ++piece) chain.AppendWritable(address + piece * 30, 30);
    rx().address_of[chain.Add()] = address;
  }
  Publish(rx());
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 20000))));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 60000))));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(3, 100))));
  for (const uint32_t number : {1U, 3U}) {
    const auto got = NextReceived(rx());
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(Body(*got), FrameOf(number, number == 1 ? 20000 : 100));
  }
  EXPECT_EQ(device_->stats(0).errors.Get(), 1u);
}

TEST_P(VirtioNetTest, WithoutBuffersTheHostIsLeftAlone) {
  Start();
  GiveBuffers(rx(), 1);
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 200))));
  ASSERT_TRUE(NextReceived(rx()).has_value());
  LetTurn(*threads_[0]);
  const uint64_t turns = threads_[0]->stats().turns.Get();
  for (uint32_t i = 20; i < 200; ++i) ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 200))));
  testing::SleepObserver(*threads_[0]).WaitUntilItSleeps();
  EXPECT_LE(threads_[0]->stats().turns.Get() - turns, 8u)
      << "frames that nobody can take wake it once";
  // The frames are there once the guest has room.
  for (uint32_t i = 1; i < 200; ++i) {
    GiveBuffers(rx(), 1);
    const auto got = NextReceived(rx());
    ASSERT_TRUE(got.has_value());
    ASSERT_EQ(Body(*got), FrameOf(i, 200));
  }
}

TEST_P(VirtioNetTest, WithBuffersInStoreTheGuestNeedNotKick) {
  for (const bool event_idx : {false, true}) {
    event_idx_ = event_idx;
    Start();
    GiveBuffers(rx(), 32);
    LetTurn(*threads_[0]);
    const uint64_t kicks = rx().kicks;
    for (uint32_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(network_->Send(WithHeader(FrameOf(i, 60))));
      ASSERT_TRUE(NextReceived(rx()).has_value());
      GiveBuffers(rx(), 1);
    }
    EXPECT_EQ(rx().kicks, kicks);
    Reset();
  }
}

TEST_P(VirtioNetTest, WhatIsNoFrameIsDropped) {
  Start();
  Add(tx(), Frame(kLeastFrame - 1));
  Add(tx(), Frame(1));
  Add(tx(), WithHeader(FrameOf(1, 60)));
  Publish(tx());
  EXPECT_EQ(network_->Receive(), WithHeader(FrameOf(1, 60)));
  EXPECT_TRUE(WaitForUsed(tx(), 3));
  EXPECT_EQ(device_->stats(1).errors.Get(), 2u);
  GiveBuffers(rx(), 2);
  ASSERT_TRUE(network_->Send(Frame(5)));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 60))));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), FrameOf(2, 60));
}

// By its bytes and by its frames: each turn shows what it has carried.
TEST_P(VirtioNetTest, ATurnIsBounded) {
  Start();
  for (const auto& [size, least] : {std::pair{16000, kRingSize * 16000 / kNetTurnBytes},
                                    {60, uint64_t{kRingSize / kNetTurnFrames}}}) {
    for (uint32_t i = 0; i < kRingSize; ++i) {
      Add(tx(), WithHeader(FrameOf(i, static_cast<size_t>(size))));
    }
    const uint64_t shown = device_->stats(1).batches.Get();
    Publish(tx());
    ASSERT_TRUE(WaitForUsed(tx(), kRingSize));
    EXPECT_GE(device_->stats(1).batches.Get() - shown, least) << size;
  }
}

TEST_P(VirtioNetTest, ATurnOfFramesThatComeInIsBounded) {
  Start();
  GiveBuffers(rx(), kRingSize, 32768);
  LetTurn(*threads_[0]);
  for (const auto& [size, frames, least] :
       {std::tuple{16000, 18U, 2U}, {60, 3 * kNetTurnFrames, 3U}}) {
    const uint64_t shown = device_->stats(0).batches.Get();
    // All of them are there before the first is looked at.
    testing::RunOn(*threads_[0], [&] {
      for (uint32_t i = 0; i < frames; ++i) {
        EXPECT_TRUE(network_->Send(WithHeader(FrameOf(i, static_cast<size_t>(size)))));
      }
    });
    for (uint32_t i = 0; i < frames; ++i) ASSERT_TRUE(NextReceived(rx()).has_value());
    EXPECT_GE(device_->stats(0).batches.Get() - shown, least) << size;
    GiveBuffers(rx(), frames, 32768);
  }
}

TEST_P(VirtioNetTest, AnIdleNetworkLetsTheThreadSleep) {
  Start();
  GiveBuffers(rx(), 8);
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 60))));
  ASSERT_TRUE(NextReceived(rx()).has_value());
  ASSERT_TRUE(testing::SleepObserver(*threads_[0]).WaitUntilItSleeps());
  const uint64_t sleeps = threads_[0]->stats().sleeps.Get();
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(threads_[0]->stats().sleeps.Get(), sleeps);
}

// The link.

TEST_P(VirtioNetTest, APulledLinkCarriesNothing) {
  Start();
  GiveBuffers(rx(), 4);
  EXPECT_EQ(Config()[6], 1);
  device_->SetLink(false);
  EXPECT_EQ(Config()[6], 0);
  Add(tx(), WithHeader(FrameOf(1, 60)));
  Publish(tx());
  ASSERT_TRUE(WaitForUsed(tx()));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 60))));
  ASSERT_TRUE(SpinUntil([&] { return !network_->HasUnread(); }));
  LetTurn(*threads_[0]);
  device_->SetLink(true);
  EXPECT_EQ(Config()[6], 1);
  Add(tx(), WithHeader(FrameOf(3, 60)));
  Publish(tx());
  EXPECT_EQ(network_->Receive(), WithHeader(FrameOf(3, 60)));
  ASSERT_TRUE(network_->Send(WithHeader(FrameOf(4, 60))));
  const auto got = NextReceived(rx());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(Body(*got), FrameOf(4, 60));
}

// Pairs and commands.

TEST_P(VirtioNetTest, PairsAreUsedWhenTheDriverSaysSo) {
  Make(3);
  Start(kMerge | kControl | kMultiQueue);
  EXPECT_EQ(network_->last_pairs, 1);
  EXPECT_EQ(network_->last_too_soon, HostNetwork::TooSoon::kWait) << "nobody would try it again";
  for (uint16_t pair = 0; pair < 3; ++pair) GiveBuffers(rx(pair), 4);
  LetTurn(*threads_[0]);
  EXPECT_EQ(Command(6, {4, 0, 2, 0}), 0);
  EXPECT_EQ(network_->last_pairs, 2);
  EXPECT_EQ(network_->last_too_soon, HostNetwork::TooSoon::kRefuse)
      << "disks of the same I/O thread do not wait for it";
  for (uint16_t pair = 0; pair < 2; ++pair) {
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(pair, 60)), pair));
    const auto got = NextReceived(rx(pair));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(Body(*got), FrameOf(pair, 60));
    Add(tx(pair), WithHeader(FrameOf(10 + pair, 60)));
    Publish(tx(pair));
    EXPECT_EQ(network_->Receive(pair), WithHeader(FrameOf(10 + pair, 60)));
  }
  for (const uint16_t pairs : {0, 4, 0x8000, 0xffff}) {
    EXPECT_EQ(
        Command(6, {4, 0, static_cast<uint8_t>(pairs & 0xff), static_cast<uint8_t>(pairs >> 8)}),
        1);
  }
  EXPECT_EQ(network_->last_pairs, 2);
  Reset();
  EXPECT_EQ(device_->pairs_in_use(), 1) << "for whoever saves it now";
  Start(kMerge | kControl | kMultiQueue);
  EXPECT_EQ(network_->last_pairs, 1) << "the next driver begins with one";
}

TEST_P(VirtioNetTest, ADriverThatKnowsOfOnePairHasItsCommandsBehindThat) {
  Make(3);
  Start(kMerge | kControl);
  EXPECT_EQ(Command(2, {0, 0, 1}), 0);
  for (const uint8_t pairs : {1, 2}) EXPECT_EQ(Command(2, {4, 0, pairs, 0}), 1);
  EXPECT_EQ(network_->last_pairs, 1);
  // What has no purpose breaks what uses it.
  Add(*queues_[4], WithHeader(FrameOf(1, 60)));
  Publish(*queues_[4]);
  EXPECT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
}

TEST_P(VirtioNetTest, AnswersCommands) {
  Start();
  EXPECT_EQ(Command(2, {0, 0, 1}), 0) << "promiscuous";
  EXPECT_EQ(Command(2, {2, 0, 7, 0}), 0) << "VLAN 7";
  EXPECT_EQ(Command(2, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0}), 0) << "empty tables";
  EXPECT_EQ(Command(2, {1, 1, 2, 9, 8, 7, 6, 5}), 0) << "a MAC address";
  EXPECT_EQ(Config(6), (Frame{2, 9, 8, 7, 6, 5}));
  for (const Frame& wrong : {Frame{}, Frame{0}, Frame{0, 0}, Frame{1, 1, 2, 9, 8}, Frame{4, 0, 1},
                             Frame{4, 0, 1, 0, 0}, Frame{4, 1, 1, 0}, Frame{1, 2, 0, 0, 0, 0, 0, 0},
                             Frame{3, 1}, Frame{5, 0}, Frame{255, 255}, Frame(4000)}) {
    EXPECT_EQ(Command(2, wrong), 1) << ::testing::PrintToString(wrong);
  }
  EXPECT_THAT(events_.reasons(), IsEmpty());
  Reset();
  EXPECT_EQ(Config(6), Frame(kMac.begin(), kMac.end()));
}

TEST_P(VirtioNetTest, ACommandWithoutRoomForItsAnswerBreaksItsQueueAlone) {
  Start();
  queues_[2]->driver.NewChain().AppendReadable(queues_[2]->buffers, 3).Add();
  Publish(*queues_[2]);
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  Add(tx(), WithHeader(FrameOf(1, 60)));
  Publish(tx());
  EXPECT_EQ(network_->Receive(), WithHeader(FrameOf(1, 60)));
}

TEST_P(VirtioNetTest, AReceiveBufferThatCanBeNoneBreaksTheQueue) {
  for (const int way : {0, 1, 2}) {
    Start();
    GiveBuffers(rx(), 1);
    auto chain = rx().driver.NewChain();
    if (way == 0) chain.AppendWritable(rx().buffers, kNetHeaderSize - 1);
    if (way == 1) chain.AppendReadable(rx().buffers, 100).AppendWritable(rx().buffers + 200, 2048);
    if (way == 2) chain.AppendWritable(memory_->regions().back().size - 8, 2048);
    chain.Add();
    Publish(rx());
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(1, 60))));
    ASSERT_TRUE(network_->Send(WithHeader(FrameOf(2, 60))));
    const auto expected = static_cast<size_t>(way + 1);
    ASSERT_TRUE(SpinUntil([&] { return events_.reasons().size() == expected; }));
    EXPECT_TRUE(NextReceived(rx()).has_value()) << "what was right before it is the driver's";
    LetTurn(*threads_[0]);
    EXPECT_THAT(events_.reasons(), SizeIs(way + 1));
    ASSERT_TRUE(testing::SleepObserver(*threads_[0]).WaitUntilItSleeps());
    Reset();
    while (network_->HasUnread()) {
      uint8_t byte;
      (void)recv(network_->channel(0).receive_fd(), &byte, 1, MSG_DONTWAIT);
    }
  }
}

TEST_P(VirtioNetTest, OffersWhatTheHostCan) {
  Make();
  constexpr uint64_t kGuest = 0x782, kHost = 0x7801;
  EXPECT_EQ(device_->features() & (kGuest | kHost), 0u);
  network_->info_.takes_offloads = true;
  network_->info_.offloads = kNetChecksum | kNetTso4;
  EXPECT_EQ(device_->features() & kHost, uint64_t{0x3801});
  EXPECT_EQ(device_->features() & kGuest, uint64_t{0x82});
  Start(0x382);
  EXPECT_EQ(network_->last_offloads, uint32_t{kNetChecksum | kNetTso4});
  Reset();
  Start(0x80);
  EXPECT_EQ(network_->last_offloads, 0u) << "segments without checksums are nothing to agree on";
}

RINGSIDE_WITH_BOTH_WAITERS(VirtioNetTest);

}  // namespace
}  // namespace ringside
