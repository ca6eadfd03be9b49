// Interrupts that are held: what holds them, what ends that, and that none which is wanted is lost.
#include "devices/queue_signal.h"

#include <gtest/gtest.h>
#include <random>

#include "tests/support/devices/held_queue.h"

namespace ringside::testing {
namespace {

constexpr int kAttempts = 50;  // at what another thread's turn on the processor may spoil

TEST(QueueSignalTest, TheOnlyRequestIsSignalledAtOnce) {
  constexpr uint64_t kRequests = 1000;
  HeldQueue held;
  held.On([&] {
    for (uint64_t i = 0; i < kRequests; ++i) {
      held.Ask(1);
      EXPECT_TRUE(held.Complete(1));
      EXPECT_TRUE(held.Interrupted());
      held.Handle();
    }
  });
  EXPECT_EQ(held.raised(SignalReason::kDry), kRequests);
  EXPECT_EQ(held.stats().total(), kRequests);
  EXPECT_EQ(held.stats().held.Get(), 0u);
}

struct Early {
  const char* name;
  IoThreadTuning tuning;
  bool event_idx = true;
};
class EarlySignalTest : public ::testing::TestWithParam<Early> {};

TEST_P(EarlySignalTest, HoldsNothing) {
  HeldQueue held(GetParam().tuning, GetParam().event_idx);
  constexpr uint64_t kRounds = 200;
  held.On([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      EXPECT_FALSE(held.Round());
      EXPECT_TRUE(held.Interrupted());
      held.Handle();
    }
  });
  EXPECT_EQ(held.stats().held.Get(), 0u);
  EXPECT_EQ(held.stats().total(), 2 * kRounds);
}

constexpr PollConfig kPolls = {.kind = PollKind::kAlways};
INSTANTIATE_TEST_SUITE_P(
    , EarlySignalTest,
    ::testing::Values(Early{"Early", {.poll = kPolls, .signalling = Signalling::kEarly}},
                      Early{"Batched", {.poll = kPolls, .signalling = Signalling::kBatched}},
                      Early{"NeverPolls", {.signalling = Signalling::kCost}},
                      Early{"WithoutEventIdx", HeldQueue::kHolds, /*event_idx=*/false}),
    [](const auto& info) { return info.param.name; });

TEST(QueueSignalTest, IsRaisedForASilentGuest) {
  HeldQueue held;
  held.On([&] { EXPECT_TRUE(held.LearnToHold()); });
  EXPECT_TRUE(held.WaitForInterrupt());
  EXPECT_EQ(held.raised(SignalReason::kSleep), held.stats().held.Get() - 1)
      << "those that the rounds have released";
  EXPECT_EQ(held.stats().dropped.Get(), 0u);
}

TEST(QueueSignalTest, WhatIsHeldAndThenRaisedIsOnRecord) {
  HeldQueue held;
  held.On([&] {
    EXPECT_TRUE(held.LearnToHold());
    held.signal().Release();
    const std::vector<SignalRecord> newest = held.NewestSignals(3);
    ASSERT_EQ(newest.size(), 3u);
    EXPECT_EQ(newest[0].step, SignalStep::kShown);
    EXPECT_EQ(newest[1].step, SignalStep::kHeld);
    EXPECT_EQ(newest[2].step, SignalStep::kRaised);
    for (const SignalRecord& each : newest) EXPECT_EQ(each.index, held.queue().shown());
    EXPECT_LE(newest[0].ns, newest[1].ns);
    EXPECT_LE(newest[1].ns, newest[2].ns);
  });
}

TEST(QueueSignalTest, IsRaisedOnceTheGuestHasReplacedWhatItHad) {
  HeldQueue held;
  held.On([&] { EXPECT_TRUE(held.LearnToHold()); });
  held.On([&] { held.Ask(HeldQueue::kDepth - 1); });
  EXPECT_TRUE(held.WaitForInterrupt());
}

TEST(QueueSignalTest, IsRaisedBeforeTheThreadSleeps) {
  HeldQueue held(
      {.poll = {.kind = PollKind::kFixed, .max_ns = 1000}, .signalling = Signalling::kCost});
  bool seen = false;
  for (int i = 0; i < kAttempts && !seen; ++i) {
    uint64_t before = 0;
    held.On([&] {
      ASSERT_TRUE(held.LearnToHold());
      before = held.raised(SignalReason::kSleep);
    });
    ASSERT_TRUE(held.WaitForInterrupt()) << "the thread sleeps, and the guest was never told";
    held.On([&] {
      seen = held.raised(SignalReason::kSleep) > before;
      held.Handle();
    });
  }
  EXPECT_TRUE(seen) << "the guest seemed silent before each sleep";
}

TEST(QueueSignalTest, IsRaisedAsSoonAsAFlushIsDone) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.Ask(1);
    held.signal().Hurry();
    held.Complete(1);
    EXPECT_TRUE(held.Interrupted());
    EXPECT_EQ(held.raised(SignalReason::kHurry), 1u);
  });
}

// What was held before may come to its end between the flush and its publication: at a look in a
// turn in which the disk was done at once, or as the trace is switched.
TEST(QueueSignalTest, WhatEndsAHoldLeavesTheHurryOfWhatIsNotShownYet) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.Ask(2);
    held.signal().Hurry();
    held.signal().Release();
    EXPECT_TRUE(held.Interrupted());
    held.Handle();
    held.Complete(1);
    EXPECT_TRUE(held.Interrupted());
    EXPECT_EQ(held.raised(SignalReason::kHurry), 1u);
  });
}

// Nobody looks at what is held any more, and the driver need not ask again.
TEST(QueueSignalTest, IsRaisedIfTheDriverHasFoundSomeOnly) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.Ask(1);
    held.Complete(1);
    EXPECT_FALSE(held.Interrupted());
    held.driver().TakeUsed();
    held.driver().EnableInterrupts();  // of the second one
    held.signal().Release();
    EXPECT_TRUE(held.Interrupted());
    held.Handle();
  });
  EXPECT_EQ(held.stats().dropped.Get(), 0u);
}

TEST(QueueSignalTest, IsDroppedIfTheDriverHasFoundAll) {
  HeldQueue held;
  for (const bool looks : {false, true}) {
    uint64_t before = 0;
    held.On([&] {
      ASSERT_TRUE(held.LearnToHold());
      before = held.stats().total();
      held.Handle();
      if (!looks) held.signal().Release();
    });
    held.On([&] {
      EXPECT_EQ(held.stats().dropped.Get(), looks ? 2u : 1u);
      EXPECT_EQ(held.stats().total(), before);
      EXPECT_FALSE(held.Interrupted());
    });
  }
}

TEST(QueueSignalTest, IsDroppedAtTheNextCompletionThatIsNotWanted) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.Handle();
    held.driver().ring().SetUsedEvent(static_cast<uint16_t>(held.driver().used_index() + 0x8000));
    held.Ask(1);
    EXPECT_FALSE(held.Complete(1));
    EXPECT_EQ(held.stats().dropped.Get(), 1u);
    held.signal().Release();
    EXPECT_FALSE(held.Interrupted()) << "nothing is held any more";
  });
}

// What is decided is decided against the index at the last decision. A driver that often finds by
// itself what is held would otherwise leave that so far behind that, 65,536 completions later, a
// wish seemed to be one of the past.
TEST(QueueSignalTest, WhatWasDroppedCountsAsDecided) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    const uint16_t event = held.driver().used_index();
    held.Handle();
    held.signal().Release();
    EXPECT_EQ(held.stats().dropped.Get(), 1u);
    held.driver().ring().SetUsedEvent(event);
    EXPECT_FALSE(held.queue().WantsInterrupt());
  });
}

TEST(QueueSignalTest, OfAQueueThatStopsIsForgotten) {
  HeldQueue held;
  uint64_t before = 0;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    before = held.stats().total();
    held.signal().Drop();
  });
  held.On([&] {
    EXPECT_FALSE(held.Interrupted());
    EXPECT_EQ(held.stats().total(), before);
    EXPECT_LT(held.stats().held_ns.Get(), 20'000'000'000u);
  });
}

// It was held while the thread polled now and then, and has to be raised by one that never does.
TEST(QueueSignalTest, IsRaisedOnceTheThreadNeverPolls) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.io_thread().SetPoll({.kind = PollKind::kNever});
    held.Ask(1);
    held.Complete(1);
    EXPECT_TRUE(held.Interrupted());
    EXPECT_LT(held.stats().held_ns.Get(), 20'000'000'000u);
    held.Handle();
    held.io_thread().SetPoll({.kind = PollKind::kAlways});
    ASSERT_TRUE(held.LearnToHold());
    held.io_thread().SetPoll({.kind = PollKind::kNever});
  });
  EXPECT_TRUE(held.WaitForInterrupt());
}

// Whatever the guest and the storage do: each publication of which the driver wanted to hear has
// led to an interrupt, waited with one that was held, or was found by the driver.
TEST(QueueSignalTest, TheCountersAddUp) {
  HeldQueue held;
  held.On([&] {
    ASSERT_TRUE(held.LearnToHold());
    held.signal().Release();
    held.Handle();
    const SignalStats& stats = held.stats();
    std::mt19937 random(1);
    uint64_t wanted = 0;
    const uint64_t before = stats.total() + stats.dropped.Get();
    uint16_t taken = 0;
    bool holds = false;
    for (int step = 0; step < 20'000; ++step) {
      const auto count = static_cast<uint16_t>(1 + random() % 4);
      if (held.driver().free_descriptors() > 8) {
        held.Ask(count);
        taken = static_cast<uint16_t>(taken + count);
      }
      if (random() % 8 == 0) held.signal().Release();
      if (random() % 64 == 0) held.signal().Hurry();
      const auto owed = [&] { return stats.total() + stats.dropped.Get() - before; };
      holds = owed() < wanted;
      const auto done = static_cast<uint16_t>(std::min<uint32_t>(taken, random() % 5));
      taken = static_cast<uint16_t>(taken - done);
      if (done > 0 && held.Complete(done) && !holds) ++wanted;
      ASSERT_TRUE(owed() == wanted || owed() + 1 == wanted) << "step " << step;
      if (random() % 2 == 0) held.Handle();
      if (random() % 8 == 0) held.driver().DisableInterrupts();
    }
    held.signal().Release();
    EXPECT_EQ(stats.total() + stats.dropped.Get() - before, wanted);
    EXPECT_GT(stats.held.Get(), 0u);
  });
}

bool Stamped(const LatencyRecord& record) {
  return record.at(LatencyPoint::kInterrupt) != 0;
}

TEST(QueueSignalTest, ATraceHasTheMomentAtWhichTheInterruptWasRaised) {
  HeldQueue held;
  held.On([&] {
    held.Trace();
    ASSERT_TRUE(held.LearnToHold());
    EXPECT_FALSE(Stamped(held.Records().back()));
    held.Ask(1);
    held.Complete(1);
    const int64_t before_ns = MonotonicNs();
    held.signal().Release();
    const std::vector<LatencyRecord> records = held.Records();
    for (size_t i = records.size() - 2; i < records.size(); ++i) {
      EXPECT_GE(records[i].at(LatencyPoint::kInterrupt), before_ns - 1000);
      EXPECT_GE(records[i].at(LatencyPoint::kInterrupt), records[i].at(LatencyPoint::kPublished));
    }
    EXPECT_LT(records[records.size() - 3].at(LatencyPoint::kInterrupt), before_ns) << "not held";
  });
}

TEST(QueueSignalTest, ATraceHasNoInterruptOfWhatTheDriverFound) {
  HeldQueue held;
  held.On([&] {
    held.Trace();
    ASSERT_TRUE(held.LearnToHold());
    const size_t found = held.Records().size() - 1;
    held.Handle();
    held.signal().Release();
    for (int i = 0; held.Records().size() < found + 2 || i < kAttempts; ++i) {
      // What is held next is raised, and the batch before it has nothing to do with that.
      held.Ask(1);
      held.Complete(1);
      held.signal().Release();
      held.Handle();
    }
    EXPECT_FALSE(Stamped(held.Records()[found]));
  });
}

}  // namespace
}  // namespace ringside::testing
