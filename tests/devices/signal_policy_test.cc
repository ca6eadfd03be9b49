// When an interrupt waits: the rules, without a thread or a clock.
#include "devices/signal_policy.h"

#include <cmath>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <utility>

namespace ringside {
namespace {

constexpr int64_t kStart = 1'000'000'000;
constexpr int64_t kMostNs = SignalPolicy::kMostNs;
constexpr int64_t kLooksNs = 1'000;  // between two looks at what is held

bool Holds(SignalReason reason) {
  return reason == SignalReason::kHold;
}

// A guest that has `depth` requests, handles those it is handed one by one, and makes a new request
// of each; a storage that answers them one by one, too.
class Guest {
 public:
  explicit Guest(uint32_t depth) : in_flight_(depth), depth_(depth) {}

  SignalPolicy& policy() { return policy_; }
  int64_t now_ns() const { return now_ns_; }
  uint32_t in_flight() const { return in_flight_; }
  uint32_t owed() const { return owed_; }

  void Pass(int64_t ns) { now_ns_ += ns; }
  void Replace(uint32_t count) {
    at_hand_ -= count;
    in_flight_ += count;
    policy_.Took(count, policy_.wants_time() ? now_ns_ : SignalPolicy::kNoTime);
  }
  // Whether it is held.
  bool Answer(uint32_t count) {
    in_flight_ -= count;
    owed_ += count;
    if (Holds(policy_.Decide(in_flight_, owed_, now_ns_))) return true;
    HandOver();
    return false;
  }
  void HandOver() {
    policy_.Handed(owed_, now_ns_);
    at_hand_ += std::exchange(owed_, 0);
  }
  // It replaces one every microsecond, until an interrupt is held while it has nearly all at hand.
  bool LearnToBeHeld() {
    for (int rounds = 0; rounds < 100'000; ++rounds) {
      for (; at_hand_ > 0; Pass(1'000)) Replace(1);
      if (Answer(depth_ - 1)) HandOver();
      Pass(100);
      if (Answer(1)) return true;
    }
    return false;
  }

 private:
  SignalPolicy policy_;
  int64_t now_ns_ = kStart;
  uint32_t in_flight_;
  uint32_t owed_ = 0;
  uint32_t at_hand_ = 0;
  const uint32_t depth_;
};

TEST(SignalPolicyTest, TheOnlyRequestNeverWaitsAndCostsNoClock) {
  Guest guest(1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(guest.policy().wants_time());
    EXPECT_FALSE(guest.Answer(1));
    EXPECT_FALSE(guest.policy().wants_time());
    guest.Replace(1);
    EXPECT_FALSE(guest.policy().busy());
    guest.Pass(1'000);
  }
}

TEST(SignalPolicyTest, NothingAtHandAndNothingInFlightNeverWaits) {
  Guest guest(64);
  ASSERT_TRUE(guest.LearnToBeHeld());
  guest.HandOver();
  for (int i = 0; i < 10'000; ++i) {
    guest.Pass(1'000);
    guest.Replace(64);
    EXPECT_FALSE(guest.policy().busy());
    EXPECT_FALSE(guest.Answer(64)) << i;
  }
}

TEST(SignalPolicyTest, AGuestThatIsSilentIsToldSoon) {
  Guest guest(64);
  ASSERT_TRUE(guest.LearnToBeHeld());
  const int64_t held_ns = guest.now_ns();
  while (Holds(guest.policy().Look(guest.in_flight() + guest.owed(), held_ns, guest.now_ns()))) {
    guest.Pass(kLooksNs);
    ASSERT_LT(guest.now_ns(), held_ns + kMostNs) << "as if it was never silent";
  }
  EXPECT_LE(guest.now_ns() - held_ns, 20'000) << "twice what it takes, and it took a microsecond";
}

TEST(SignalPolicyTest, AGuestThatRestsOnceIsNotWaitedForAfterwards) {
  Guest guest(64);
  ASSERT_TRUE(guest.LearnToBeHeld());
  const double before_ns = guest.policy().Explain().silence_ns;
  guest.HandOver();
  guest.Pass(10'000'000'000);
  guest.Replace(1);
  EXPECT_LE(guest.policy().Explain().silence_ns, 2 * before_ns);
}

// Of a guest that polls nothing is known.
TEST(SignalPolicyTest, WhatIsForgottenIsNotWaitedFor) {
  Guest guest(64);
  ASSERT_TRUE(guest.LearnToBeHeld());
  guest.policy().Forget();
  EXPECT_FALSE(guest.policy().busy());
  EXPECT_FALSE(guest.policy().wants_time());
  EXPECT_FALSE(Holds(guest.policy().Look(64, guest.now_ns(), guest.now_ns() + 1)));
}

// A guest whose requests come when they come, every 20 us on average, and are answered 100 us
// later. It is done with completions at once. How long one waited for its interrupt, on average.
int64_t MeanWaitOfAnOpenLoop(int64_t for_ns) {
  constexpr int64_t kServiceNs = 100'000;
  std::mt19937 random(1);
  SignalPolicy policy;
  std::deque<int64_t> due_ns;  // of what is in flight
  uint32_t owed = 0;
  int64_t held_ns = 0;  // since when; 0: nothing is held
  int64_t waited_ns = 0;
  int64_t answers = 0;
  for (int64_t now_ns = kStart; now_ns < kStart + for_ns; now_ns += kLooksNs) {
    if (random() % 20 == 0) {
      due_ns.push_back(now_ns + kServiceNs);
      policy.Took(1, policy.wants_time() ? now_ns : SignalPolicy::kNoTime);
    }
    for (; !due_ns.empty() && due_ns.front() <= now_ns; due_ns.pop_front(), ++answers) ++owed;
    if (owed == 0) continue;
    const auto in_flight = static_cast<uint32_t>(due_ns.size());
    const SignalReason reason = held_ns == 0 ? policy.Decide(in_flight, owed, now_ns)
                                             : policy.Look(in_flight + owed, held_ns, now_ns);
    if (Holds(reason)) {
      if (held_ns == 0) held_ns = now_ns;
      waited_ns += owed * kLooksNs;
    } else {
      held_ns = 0;
      policy.Handed(std::exchange(owed, 0), now_ns);
    }
  }
  return waited_ns / answers;
}

// It is never silent, however much it waits for, so that what it has at hand cannot be found out.
TEST(SignalPolicyTest, AGuestThatAsksWhateverItHearsDoesNotWaitForItsSilence) {
  const int64_t wait_ns = MeanWaitOfAnOpenLoop(2'000'000'000);
  EXPECT_LE(wait_ns, 200'000);
}

// Of a guest whose loop is 3% slower while interrupts are held, and by chance a fifth slower or
// faster every half millisecond: for which part of its rounds they are held.
double PartThatIsHeld(uint32_t seed) {
  constexpr uint32_t kDepth = 32;
  constexpr int kRounds = 60'000;
  std::mt19937 random(seed);
  std::normal_distribution<double> scatter(0, 0.2);
  SignalPolicy policy;
  int64_t now_ns = kStart;
  int64_t changes_ns = kStart;
  double pace_ns = 0;
  int held = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (now_ns >= changes_ns) {
      pace_ns = 2'000 * std::exp(scatter(random));
      changes_ns = now_ns + 500'000;
    }
    held += policy.holds() ? 1 : 0;
    const auto each_ns = static_cast<int64_t>(policy.holds() ? pace_ns / 0.97 : pace_ns);
    for (uint32_t i = 0; i < kDepth; ++i) {
      now_ns += each_ns;
      policy.Took(1, policy.wants_time() ? now_ns : SignalPolicy::kNoTime);
    }
    policy.Decide(1, kDepth - 1, now_ns);
    policy.Handed(kDepth, now_ns);
  }
  return static_cast<double>(held) / kRounds;
}

TEST(SignalPolicyTest, RatesThatScatterAreNoReasonToWait) {
  constexpr int kSeeds = 5;
  double held = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) held += PartThatIsHeld(seed) / kSeeds;
  EXPECT_LE(held, 0.48);
}

// Whatever is handed, taken and asked, and whatever the clock does short of running backwards.
class AnyGuest {
 public:
  explicit AnyGuest(uint32_t seed) : random_(seed) {}

  void Step() {
    Pass();
    switch (random_() % 4) {
      case 0:
        return policy_.Handed(Count(), Time());
      case 1:
        return policy_.Took(Count(), Time());
      case 2:
        if (random_() % 64 == 0) policy_.Forget();
        return;
      default:
        break;
    }
    const uint32_t in_flight = Count();
    const bool idle = !policy_.busy() && in_flight == 0;
    const bool holds = Holds(policy_.Decide(in_flight, Count(), now_ns_));
    EXPECT_FALSE(holds && idle);
    if (holds) HoldTo();
    const SignalExplanation explanation = policy_.Explain();
    EXPECT_GE(explanation.silence_ns, 0);
    for (const SignalExplanation::Lesson& lesson : explanation.lessons) {
      EXPECT_LT(lesson.rung, SignalExplanation::kRungs);
      for (const double rate : lesson.rates) EXPECT_GE(rate, 0);
    }
  }

 private:
  // The end, by the clock at the latest.
  void HoldTo() {
    const int64_t since_ns = now_ns_;
    for (int looks = 0; looks < 8; ++looks) {
      Pass();
      if (random_() % 2 == 0) policy_.Took(Count(), now_ns_);
      const bool holds = Holds(policy_.Look(Count(), since_ns, now_ns_));
      EXPECT_FALSE(holds && now_ns_ - since_ns > kMostNs);
      if (!holds) return;
    }
    now_ns_ = std::max(now_ns_, since_ns + kMostNs + 1);
    EXPECT_FALSE(Holds(policy_.Look(Count(), since_ns, now_ns_)));
  }
  void Pass() {
    constexpr std::array<int64_t, 6> kSteps = {0, 1, 1'000, 1'000'000, kMostNs, 100'000'000'000};
    now_ns_ += kSteps[random_() % kSteps.size()];
  }
  int64_t Time() { return random_() % 8 == 0 ? SignalPolicy::kNoTime : now_ns_; }
  uint32_t Count() {
    constexpr std::array<uint32_t, 7> kCounts = {0, 1, 2, 63, 255, 1024, 65535};
    return kCounts[random_() % kCounts.size()];
  }

  std::mt19937 random_;
  SignalPolicy policy_;
  int64_t now_ns_ = kStart;
};

TEST(SignalPolicyTest, HoldsNothingForLongWhateverAGuestDoes) {
  for (uint32_t seed = 0; seed < 20 && !::testing::Test::HasFailure(); ++seed) {
    AnyGuest guest(seed);
    for (int step = 0; step < 20'000 && !::testing::Test::HasFailure(); ++step) guest.Step();
  }
}

// A deep job's buffers come back in turn; that of somebody who waits for it alone is back soon.
TEST(SignalPolicyTest, ABufferThatIsBackSoonIsAwaited) {
  constexpr uint32_t kDepth = 32;
  constexpr int kCompletions = 4096;
  constexpr uint64_t kAlone = 0x7f0000000000;
  Guest guest(kDepth);
  ASSERT_TRUE(guest.LearnToBeHeld());
  ASSERT_TRUE(guest.policy().holds());
  int others = 0;
  int alone = 0;
  for (int i = 0; i < kCompletions; ++i) {
    const uint64_t buffer =
        i % 4 == 0 ? kAlone : kAlone + 4096 * (1 + static_cast<uint64_t>(i) % 31);
    (i % 4 == 0 ? alone : others) += guest.policy().IsAwaited(buffer) ? 1 : 0;
  }
  EXPECT_GE(alone, kCompletions / 4 - 1);
  // One in many is tried, and two buffers may have a place together.
  EXPECT_LE(others, kCompletions / 32);
}

TEST(SignalPolicyTest, EachReasonHasAName) {
  for (size_t i = 0; i < kSignalReasons; ++i) {
    EXPECT_STRNE(SignalReasonName(static_cast<SignalReason>(i)), "");
  }
}

}  // namespace
}  // namespace ringside
