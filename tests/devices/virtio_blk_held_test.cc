// What a virtio-blk queue does about an interrupt that is held when it rests, moves, is traced or
// reset, and when a flush is done.
#include "tests/support/devices/virtio_blk_move_fixture.h"
#include "tests/support/races.h"

namespace ringside::testing {
namespace {

class VirtioBlkHeldTest : public VirtioBlkMoveFixture {
 protected:
  static constexpr size_t kDepth = 8;
  static constexpr int kAttempts = 50;  // at what another thread's turn on the processor may spoil

  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      threads_.push_back(
          *IoThread::Start("test", IoThread::Waiter::kEpoll,
                           {.poll = {.kind = PollKind::kAlways}, .signalling = Signalling::kCost}));
    }
    Setting setting = TwoThreads();
    setting.driver.queue.event_idx = true;
    Start(setting);
    disk_->Hold(true);
    // As if it had other work: a thread that sleeps lets go of what it holds.
    RunOn(*threads_[0], [&] { threads_[0]->RequestBegins(); });
  }
  void TearDown() override {
    RunOn(*threads_[0], [&] { threads_[0]->RequestEnds(); });
  }

  const SignalStats& signals() const { return device_->stats(0).signals; }
  uint64_t raised(SignalReason reason) const {
    return signals().raised[static_cast<size_t>(reason)].Get();
  }
  bool Interrupted() {
    if (!WaitForFd(rig().call.fd(), POLLIN, absl::ZeroDuration())) return false;
    rig().call.Clear();
    return true;
  }
  void Handle(size_t count) {
    for (; count > 0; --count) rig().Wait();
    rig().queue().EnableInterrupts();
  }
  // A guest that has kDepth requests is handed all but one of them.
  void HandOverAllButOne() {
    for (size_t i = 0; i < kDepth; ++i) driver().AddRead(8 * i, 512);
    rig().Publish();
    EXPECT_TRUE(disk_->WaitForHeld(kDepth));
    for (size_t i = 1; i < kDepth; ++i) disk_->Release(0);
    Handle(kDepth - 1);
    Interrupted();
  }
  // It needs a while to ask anew.
  static void React() {
    constexpr int64_t kReactionNs = 1'500'000;
    for (const int64_t end_ns = MonotonicNs() + kReactionNs; MonotonicNs() < end_ns;) {
    }
  }
  // Whether it is not told at once of the last one.
  bool Round() {
    HandOverAllButOne();
    const uint64_t before = signals().held.Get();
    disk_->Release(0);
    EXPECT_TRUE(SpinUntil([&] { return rig().queue().HasUsed(); }));
    LetTurn(*threads_[0], 1);
    return signals().held.Get() > before;
  }
  // What the queue has learned of the guest goes with it.
  void BeginAnew() {
    if (active_) Reset();
    MakeRigs();
    Activate();
    disk_->Hold(true);
  }
  // Has an `action` meet an interrupt that is held, until that `is_seen` in what happens.
  template <typename Action, typename IsSeen>
  void UntilSeen(Action action, IsSeen is_seen) {
    int attempts = 0;
    for (const RaceLimit limit; attempts < kAttempts && !limit.IsOver() && !HasFailure();) {
      if (Round()) {
        ++attempts;
        action();
        if (is_seen()) return;
        BeginAnew();
        continue;
      }
      Handle(1);
      React();
    }
    ADD_FAILURE() << "nothing was held in time";
  }
  void UntilReleased(const std::function<void()>& action) {
    uint64_t before = 0;
    UntilSeen(
        [&] {
          before = raised(SignalReason::kSleep);
          action();
          EXPECT_TRUE(Interrupted()) << "at the end of it";
        },
        [&] { return raised(SignalReason::kSleep) > before; });
  }
};

TEST_F(VirtioBlkHeldTest, IsRaisedBeforeTheQueueRests) {
  UntilReleased([this] {
    BoundedEvent rests;
    TaskOf done([&] { rests.Notify(); });
    device_->Pause(done);
    rests.WaitOrAbort();
    device_->Resume();
  });
}

// Some of these interrupts would be held if the queue did not rest.
TEST_F(VirtioBlkHeldTest, NothingIsHeldOnTheWayToRest) {
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    HandOverAllButOne();
    BoundedEvent rests;
    TaskOf done([&] { rests.Notify(); });
    device_->Pause(done);
    LetTurn(*threads_[0], 1);
    const uint64_t held = signals().held.Get();
    disk_->Release(0);
    rests.WaitOrAbort();
    EXPECT_TRUE(Interrupted());
    EXPECT_EQ(signals().held.Get(), held);
    device_->Resume();
    Handle(1);
    React();
  }
}

TEST_F(VirtioBlkHeldTest, IsRaisedBeforeTheQueueMoves) {
  UntilReleased([this] {
    EXPECT_TRUE(MoveTo(1).ok());
    EXPECT_TRUE(MoveTo(0).ok());
  });
}

TEST_F(VirtioBlkHeldTest, IsRaisedBeforeTheTraceIsAnother) {
  std::unique_ptr<LatencyTrace> other = device_->NewTrace(0);
  UntilReleased([&] {
    RunOn(*threads_[0], [&] { other = device_->SetTrace(0, std::move(other)); });
    LetTurn(*threads_[0], 1);
  });
}

// Another request is in flight: else it would be signalled at once as the only one.
TEST_F(VirtioBlkHeldTest, IsNotThoughtOfForAFlush) {
  driver().AddRead(0, 512);
  driver().AddFlush();
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(2));
  disk_->Release(1);
  EXPECT_TRUE(WaitForFd(rig().call.fd(), POLLIN));
  EXPECT_EQ(raised(SignalReason::kHurry), 1u);
}

TEST_F(VirtioBlkHeldTest, IsForgottenByAReset) {
  bool forgotten = false;
  UntilSeen(
      [&] {
        uint64_t before = 0;
        bool is_held = false;
        RunOn(*threads_[0], [&] {
          before = signals().total();
          is_held = !Interrupted();
        });
        Reset();
        forgotten = is_held && signals().total() == before;
        LetTurn(*threads_[0]);
        EXPECT_EQ(Interrupted(), is_held && !forgotten);
        BeginAnew();
        disk_->Hold(false);
        EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
        EXPECT_TRUE(SpinUntil([&] { return Interrupted(); })) << "the new driver is told";
      },
      [&] { return forgotten; });
}

// As many more than fit as a guest likes. They are made by the test, which takes a thousandth of
// the time.
TEST_F(VirtioBlkHeldTest, OfAllRecordsTheNewestAreKept) {
  constexpr size_t kKept = 65'536;
  Reset();
  device_->RecordSignals(0);
  auto& records = const_cast<SignalRecords&>(*device_->signals(0));
  for (size_t i = 0; i < 2 * kKept + 1; ++i) records.Add().index = static_cast<uint16_t>(i);
  EXPECT_EQ(records.InOrder().size(), kKept);
  EXPECT_EQ(records.overwritten(), kKept + 1);
  static_assert(sizeof(SignalRecord) * kKept == kMiB);
}

}  // namespace
}  // namespace ringside::testing
