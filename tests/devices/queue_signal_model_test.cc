// Interrupts that may be held, under whatever a driver, a device and an embedder do in any order,
// by seed. Held against one rule: a driver that has handled all there is and asked for the next
// interrupt is sent one once something is shown to it, and none before.
#include <gtest/gtest.h>
#include <random>

#include "tests/support/devices/held_queue.h"

namespace ringside::testing {
namespace {

constexpr int kRounds = 200;
// What is held is a matter of time: on a busy machine it takes more lives to see that.
constexpr uint32_t kLives = 20, kMostLives = 300;
constexpr uint16_t kSizes[] = {1, 2, 8, 64, 1024};  // of rings

class AnyLife {
 public:
  AnyLife(uint32_t seed, IoThread& other)
      : random_(seed),
        other_(other),
        held_(HeldQueue::kHolds, /*event_idx=*/true, kSizes[seed % std::size(kSizes)]) {}

  void Live() {
    // In some of these lives the indices wrap.
    if (Chance(2)) held_.On([this] { TurnRing(static_cast<uint16_t>(0xffff - random_() % 256)); });
    for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
      Embedder();
      held_.On([this] {
        for (auto steps = 1 + random_() % 8; steps > 0; --steps) Step();
      });
      if (due_ && Chance(4)) ExpectTold("in time");
    }
    held_.On([this] {
      Notice();
      Handle();
      if (held_.in_flight() == 0) held_.Ask(1);
      Complete(held_.in_flight());
    });
    if (due_) ExpectTold("at last");
  }
  const SignalStats& stats() const { return held_.stats(); }

 private:
  bool Chance(uint32_t one_in) { return random_() % one_in == 0; }

  // Until the index is there, with a driver that polls.
  void TurnRing(uint16_t index) {
    held_.driver().DisableInterrupts();
    while (held_.driver().used_index() != index) {
      held_.Ask(1);
      held_.Complete(1);
      held_.driver().TakeUsed();
    }
    held_.Interrupted();
    waits_ = false;
  }

  void Embedder() {
    if (Chance(8)) held_.MoveTo(Chance(2) ? &other_ : nullptr);
    if (!Chance(8)) return;
    constexpr PollConfig kPolls[] = {{.kind = PollKind::kAlways},
                                     {.kind = PollKind::kAlways},
                                     {.kind = PollKind::kCost},
                                     {.kind = PollKind::kGrowShrink},
                                     {.kind = PollKind::kFixed, .max_ns = 1'000},
                                     {.kind = PollKind::kNever}};
    held_.On([&] { held_.io_thread().SetPoll(kPolls[random_() % std::size(kPolls)]); });
  }

  void Step() {
    ++steps_;
    Notice();
    const auto kind = random_() % 32;
    if (kind < 8) return Ask();
    if (kind < 16) return Complete(Some(held_.in_flight()));
    if (kind < 23) return Handle();
    switch (kind) {
      case 23:  // it polls
        held_.driver().TakeUsed();
        return;
      case 24:
        return AskForAnything();
      case 25:
        held_.signal().Release();
        EXPECT_TRUE(Notice() || !due_) << "after a release, step " << steps_;
        return;
      case 26:
        Chance(2) ? held_.Trace() : held_.StopTrace();
        return;
      case 27:
        EXPECT_GE(held_.signal().Explain().silence_ns, 0);
        return;
      case 28:
        return Reset();
      default:
        return React();
    }
  }

  // What has come to the guest since it last looked. It may be too busy, and do nothing about it.
  bool Notice() {
    if (!held_.Interrupted()) return false;
    EXPECT_TRUE(due_ || !waits_) << "for nothing, step " << steps_;
    waits_ = due_ = false;
    return true;
  }
  // From none, if there are none, to all.
  uint16_t Some(uint16_t all) {
    return static_cast<uint16_t>(all - (all > 0 ? random_() % all : 0));
  }
  void Ask() {
    const uint16_t room = std::min<uint16_t>(held_.driver().free_descriptors(), 40);
    if (room > 0) held_.Ask(Some(room));
  }
  void Complete(uint16_t count) {
    if (count == 0) return;
    constexpr uint64_t kBuffers[] = {0, 1, 0x7f0000001000, ~uint64_t{0}};
    for (uint16_t i = 0; i < count; ++i) {
      const uint64_t buffer = Chance(4) ? kBuffers[random_() % std::size(kBuffers)] : random_();
      held_.signal().Completed(reinterpret_cast<const std::byte*>(buffer));
    }
    const bool hurries = Chance(16);
    if (hurries) held_.signal().Hurry();
    // Before these are shown, as in a turn in which the disk is done at once.
    if (Chance(16)) held_.signal().Release();
    held_.Complete(count);
    due_ = waits_;
    const bool may_wait = !hurries && held_.io_thread().may_hold();
    EXPECT_TRUE(may_wait || !due_ || Notice()) << "at once, step " << steps_;
  }
  void Handle() {
    held_.Handle();
    waits_ = true;
    due_ = false;
  }
  // For an interrupt at an index of the past, of the future or at none: all that is promised of it
  // is that it does no harm.
  void AskForAnything() {
    constexpr uint16_t kFar[] = {0, 1, 0xffff, 0x7fff, 0x8000, 0x8001};
    const auto far = Chance(2) ? kFar[random_() % std::size(kFar)] : random_();
    held_.driver().ring().SetUsedEvent(
        static_cast<uint16_t>(held_.driver().ring().used_index() + far));
    waits_ = due_ = false;
  }
  void Reset() {
    if (!Chance(64)) return;  // what was learned goes with it
    held_.Reset();
    waits_ = true;
    due_ = false;
  }
  // It needs a while for what it does next.
  void React() {
    const int64_t end_ns = MonotonicNs() + random_() % 50'000;
    while (MonotonicNs() < end_ns) {
    }
  }
  void ExpectTold(const char* when) {
    EXPECT_TRUE(held_.WaitForInterrupt()) << when << ", step " << steps_;
    held_.On([this] { Notice(); });
  }

  std::mt19937 random_;
  IoThread& other_;
  HeldQueue held_;
  int steps_ = 0;
  bool waits_ = true;  // the driver has handled everything and asked for the next interrupt
  bool due_ = false;   // something was shown to it since
};

TEST(QueueSignalModelTest, WhoeverWaitsIsToldAndNobodyElse) {
  const std::unique_ptr<IoThread> other =
      *IoThread::Start("other", IoThread::Waiter::kEpoll,
                       {.poll = {.kind = PollKind::kCost}, .signalling = Signalling::kCost});
  RunOn(*other, [&] { other->RequestBegins(); });
  uint64_t held = 0, dropped = 0;
  const auto is_enough = [&](uint32_t lives) {
    return lives == kMostLives || (lives >= kLives && held > 0 && dropped > 0);
  };
  for (uint32_t seed = 0; !is_enough(seed) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    AnyLife life(seed, *other);
    life.Live();
    held += life.stats().held.Get();
    dropped += life.stats().dropped.Get();
  }
  RunOn(*other, [&] { other->RequestEnds(); });
  EXPECT_GT(held, 0u);
  EXPECT_GT(dropped, 0u);
}

}  // namespace
}  // namespace ringside::testing
