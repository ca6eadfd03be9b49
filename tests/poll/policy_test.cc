// How long to look: the rules, without a thread or a clock.
#include <gtest/gtest.h>
#include <memory>

#include "poll/policy.h"

namespace ringside {
namespace {

constexpr int64_t kMax = 32'000;
constexpr int64_t kLate = kMax + 1;

int64_t SpinNs(PollPolicy& policy, Waiting what) {
  const WaitPlan plan = policy.Plan(what, 0);
  EXPECT_EQ(plan.doze_ns, 0);
  return plan.spin_ns;
}

void Observe(PollPolicy& policy, Waiting what, int64_t waited_ns, uint64_t ready = 1) {
  policy.Observe({.what = what, .waited_ns = waited_ns, .ready = ready});
}

std::unique_ptr<PollPolicy> GrowShrink(uint32_t grow, uint32_t shrink) {
  return PollPolicy::Create(
      {.kind = PollKind::kGrowShrink, .max_ns = kMax, .grow = grow, .shrink = shrink});
}

TEST(PollPolicy, NeverIsNone) {
  EXPECT_EQ(PollPolicy::Create({.kind = PollKind::kNever}), nullptr);
}

TEST(PollPolicy, AlwaysAndFixedStayAsTheyAreWhateverHappens) {
  const auto always = PollPolicy::Create({.kind = PollKind::kAlways});
  const auto fixed = PollPolicy::Create({.kind = PollKind::kFixed, .max_ns = 7'000});
  for (const int64_t waited : {int64_t{0}, int64_t{5'000}, int64_t{1'000'000'000}}) {
    for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
      Observe(*always, what, waited);
      Observe(*fixed, what, waited);
      EXPECT_EQ(SpinNs(*always, what), PollPolicy::kForever);
      EXPECT_EQ(SpinNs(*fixed, what), 7'000);
    }
  }
}

TEST(PollPolicy, ExplainsItsLimitsAndCountsTheWaitsItPlanned) {
  const auto policy = GrowShrink(2, 2);
  for (int i = 0; i < 3; ++i) {
    policy->Plan(Waiting::kInFlight, 0);
    Observe(*policy, Waiting::kInFlight, 20'000);
  }
  policy->Plan(Waiting::kIdle, 0);
  const PollExplanation explanation = policy->Explain();
  EXPECT_EQ(explanation.of(Waiting::kInFlight).plan.spin_ns, 16'000);
  EXPECT_EQ(explanation.of(Waiting::kInFlight).waits_by(WaitReason::kPolicy), 3u);
  EXPECT_EQ(explanation.of(Waiting::kIdle).plan.spin_ns, 0);
  EXPECT_EQ(explanation.of(Waiting::kIdle).waits_by(WaitReason::kPolicy), 1u);
  EXPECT_TRUE(explanation.of(Waiting::kIdle).histogram.empty());
}

TEST(PollPolicy, GrowShrinkGrowsByNearMissesUpToTheMaximum) {
  const auto policy = GrowShrink(2, 0);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 0);
  for (const int64_t expected : {4'000, 8'000, 16'000, 32'000, 32'000}) {
    Observe(*policy, Waiting::kIdle, kMax);
    EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), expected);
  }
}

TEST(PollPolicy, GrowShrinkStaysWhereItCatchesWhatComes) {
  const auto policy = GrowShrink(3, 0);
  Observe(*policy, Waiting::kIdle, 10);
  Observe(*policy, Waiting::kIdle, 4'001);
  ASSERT_EQ(SpinNs(*policy, Waiting::kIdle), 12'000);
  for (const int64_t waited : {0, 1, 4'000, 12'000}) {
    Observe(*policy, Waiting::kIdle, waited);
    EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 12'000) << waited;
  }
}

TEST(PollPolicy, GrowShrinkShrinksAfterWhatNoLimitWouldHaveCaught) {
  const auto to_nothing = GrowShrink(2, 0);
  const auto by_half = GrowShrink(2, 2);
  for (PollPolicy* policy : {to_nothing.get(), by_half.get()}) {
    for (int i = 0; i < 4; ++i) Observe(*policy, Waiting::kIdle, kMax);
    Observe(*policy, Waiting::kIdle, kLate);
  }
  EXPECT_EQ(SpinNs(*to_nothing, Waiting::kIdle), 0);
  EXPECT_EQ(SpinNs(*by_half, Waiting::kIdle), 16'000);
}

// At depth 1 a wait for the disk and one for the guest follow each other for ever.
TEST(PollPolicy, GrowShrinkLearnsTheTwoWaitsApart) {
  const auto policy = GrowShrink(2, 0);
  for (int i = 0; i < 10; ++i) {
    Observe(*policy, Waiting::kIdle, 3'000);
    Observe(*policy, Waiting::kInFlight, 100'000);
  }
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 4'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kInFlight), 0);
}

TEST(PollPolicy, GrowShrinkWithoutAMaximumNeverLooks) {
  const auto policy =
      PollPolicy::Create({.kind = PollKind::kGrowShrink, .max_ns = 0, .grow = 2, .shrink = 0});
  for (const int64_t waited : {0, 1, 1'000}) {
    Observe(*policy, Waiting::kIdle, waited);
    EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 0);
  }
}

std::unique_ptr<PollPolicy> Weighted(uint32_t weight, uint32_t shrink = 2) {
  return PollPolicy::Create(
      {.kind = PollKind::kWeighted, .max_ns = kMax, .shrink = shrink, .weight = weight});
}

TEST(PollPolicy, WeightedTakesALongerIntervalAtOnceAndAShorterStepByStep) {
  const auto policy = Weighted(0);
  Observe(*policy, Waiting::kIdle, 10'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 10'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kInFlight), 10'000);  // one limit for all
  Observe(*policy, Waiting::kIdle, 11'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 20'000);
  for (const int64_t expected : {10'000, 5'000, 2'500, 2'500}) {
    Observe(*policy, Waiting::kIdle, 2'000);
    EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), expected);
  }
}

TEST(PollPolicy, WeightedSmoothesByItsWeight) {
  const auto policy = Weighted(3);
  Observe(*policy, Waiting::kIdle, 8'000);
  Observe(*policy, Waiting::kIdle, 24'000);  // an eighth of the way: 10'000
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 16'000);
  for (int i = 0; i < 3; ++i) Observe(*policy, Waiting::kIdle, 10'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 16'000);  // not below half of it
}

TEST(PollPolicy, WeightedForgetsWhatIsBeyondTheMaximum) {
  const auto policy = Weighted(3);
  Observe(*policy, Waiting::kIdle, 20'000);
  Observe(*policy, Waiting::kIdle, 200'000);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 10'000);
  Observe(*policy, Waiting::kIdle, 9'000);  // known anew, not smoothed with what was
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 10'000);
}

TEST(PollPolicy, WeightedFollowsTheSlowestOfThoseThatHadWork) {
  const auto policy = Weighted(0);
  Observe(*policy, Waiting::kIdle, 20'000, 2);
  ASSERT_EQ(SpinNs(*policy, Waiting::kIdle), 20'000);
  Observe(*policy, Waiting::kIdle, 3'000, 4);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 10'000);  // the other was silent, and says nothing
  Observe(*policy, Waiting::kIdle, 3'000, 4);
  Observe(*policy, Waiting::kIdle, 15'000, 2 | 4);
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 15'000);
  Observe(*policy, Waiting::kIdle, 1, 0);  // a task
  EXPECT_EQ(SpinNs(*policy, Waiting::kIdle), 15'000);
}

}  // namespace
}  // namespace ringside
