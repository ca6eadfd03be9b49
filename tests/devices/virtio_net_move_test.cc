// Queues of a virtio-net device that are moved, come to rest and are reset while frames go both
// ways: each frame is carried once, in order, and no buffer of the guest is lost.
#include <gmock/gmock.h>

#include "tests/support/devices/virtio_net_fixture.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::FrameOf;
using ::testing::IsEmpty;
using testing::SpinUntil;
using testing::VirtioNetTest;
using testing::WithHeader;

class VirtioNetMoveTest : public VirtioNetTest {
 protected:
  // Frames go both ways until they have done so `frames` times, with `disturb` every now and then.
  template <typename Disturb>
  void Exchange(uint32_t frames, uint32_t period, Disturb disturb) {
    uint32_t to_send = 0, to_receive = 0, out_sent = 0, out_received = 0;
    const absl::Time deadline = absl::Now() + testing::kWaitLimit;
    while (to_receive < frames || out_received < frames) {
      ASSERT_LT(absl::Now(), deadline) << to_receive << " in, " << out_received << " out";
      if (to_send < frames && to_send - to_receive < 40 &&
          network_->Send(WithHeader(FrameOf(to_send, Size(to_send))))) {
        ++to_send;
      }
      while (rx().driver.HasUsed()) {
        const auto got = NextReceived(rx());
        ASSERT_TRUE(got.has_value());
        ASSERT_EQ(*got, Expected(to_receive));
        ++to_receive;
      }
      const uint16_t free = rx().driver.free_descriptors();
      if (free > 8) GiveBuffers(rx(), free, 1536);
      while (tx().driver.TakeUsed().has_value()) {
      }
      if (out_sent < frames && HasRoom(tx())) {
        Add(tx(), WithHeader(FrameOf(out_sent, Size(out_sent))));
        Publish(tx());
        ++out_sent;
      }
      while (const auto got = network_->TryReceive()) {
        ASSERT_EQ(*got, WithHeader(FrameOf(out_received, Size(out_received))));
        ++out_received;
      }
      if (to_send % period == 0) disturb();
    }
  }
  static size_t Size(uint32_t number) { return number % 7 == 0 ? 9000 : 60 + number % 1400; }
  static std::vector<uint8_t> Expected(uint32_t number) {
    std::vector<uint8_t> frame = WithHeader(FrameOf(number, Size(number)));
    frame[10] = static_cast<uint8_t>((frame.size() + 1535) / 1536);
    return frame;
  }
};

TEST_P(VirtioNetMoveTest, QueuesMoveUnderTraffic) {
  Start();
  size_t moves = 0;
  Exchange(1500, 10, [&] {
    Move(0, ++moves % 2);
    Move(1, (moves / 2) % 2);
  });
  EXPECT_EQ(device_->stats(0).errors.Get() + device_->stats(1).errors.Get(), 0u);
}

TEST_P(VirtioNetMoveTest, TheDeviceRestsUnderTraffic) {
  Start();
  Exchange(1500, 10, [&] {
    Pause();
    for (uint16_t i = 0; i < 2; ++i) {
      EXPECT_EQ(device_->Position(i), queues_[i]->driver.ring().used_index())
          << "what was taken is answered, all else waits in the ring";
    }
    device_->Resume();
  });
  EXPECT_THAT(events_.reasons(), IsEmpty());
}

TEST_P(VirtioNetMoveTest, TheDeviceIsMadeAnewUnderTraffic) {
  Make();
  Start();
  ASSERT_EQ(Command(2, {1, 1, 2, 9, 8, 7, 6, 5}), 0);
  Exchange(600, 50, [&] {
    Pause();
    const std::vector<uint8_t> state = device_->SaveState();
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < 3; ++i) {
      setups.push_back(queues_[i]->driver.Setup(i, queues_[i]->kick, queues_[i]->line));
      setups.back().next = device_->Position(i);
    }
    Reset();
    MakeDevice();
    ASSERT_TRUE(device_->CheckState(state).ok());
    device_->RestoreState(state);
    BoundedEvent rests;
    TaskOf rest([&] { rests.Notify(); });
    device_->Pause(rest);
    Activate(kMerge | kControl, setups);
    rests.WaitOrAbort();
    EXPECT_EQ(Config(6), (std::vector<uint8_t>{2, 9, 8, 7, 6, 5}));
    device_->Resume();
  });
  EXPECT_GT(events_.config_changes, 0) << "the driver is asked to make itself known";
  EXPECT_EQ(Config(8)[6], 3);
  EXPECT_EQ(Command(2, {3, 0}), 0);
  EXPECT_EQ(Config(8)[6], 1);
}

TEST_P(VirtioNetMoveTest, AResetUnderTrafficTouchesNothingAfterwards) {
  for (uint32_t round = 0; round < 100; ++round) {
    Start();
    GiveBuffers(rx(), 32);
    for (uint32_t i = 0; i < 20; ++i) {
      network_->Send(WithHeader(FrameOf(i, 9000)));
      if (i < 10) Add(tx(), WithHeader(FrameOf(i, 9000)));
    }
    Publish(tx());
    if (round % 2 == 0) {
      ASSERT_TRUE(SpinUntil([&] { return rx().driver.HasUsed(); }));
    }
    Reset();
    const uint16_t used[] = {rx().driver.ring().used_index(), tx().driver.ring().used_index()};
    testing::LetTurn(*threads_[0], 1);
    ASSERT_EQ(rx().driver.ring().used_index(), used[0]);
    ASSERT_EQ(tx().driver.ring().used_index(), used[1]);
    while (network_->TryReceive().has_value()) {
    }
  }
  EXPECT_THAT(events_.reasons(), IsEmpty());
}

TEST_P(VirtioNetMoveTest, TakesNoStateOfAnotherShape) {
  Make(2);
  const std::vector<uint8_t> state = device_->SaveState();
  EXPECT_TRUE(device_->CheckState(state).ok());
  EXPECT_FALSE(device_->CheckState({}).ok());
  EXPECT_FALSE(device_->CheckState(std::span(state).first(state.size() - 1)).ok());
  for (const auto& [at, value] : {std::pair{6, 4}, {8, 3}, {10, 1}, {12, 0}, {12, 3}}) {
    std::vector<uint8_t> wrong = state;
    wrong[static_cast<size_t>(at)] = static_cast<uint8_t>(value);
    EXPECT_FALSE(device_->CheckState(wrong).ok()) << at;
  }
}

RINGSIDE_WITH_BOTH_WAITERS(VirtioNetMoveTest);

}  // namespace
}  // namespace ringside
