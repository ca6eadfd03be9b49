// How long to look: the rules, without a thread or a clock.
#include <gtest/gtest.h>
#include <memory>

#include "poll/policy.h"

namespace ringside {
namespace {

constexpr int64_t kMax = 32'000;
constexpr int64_t kLate = kMax + 1;

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
      always->Observe(what, waited);
      fixed->Observe(what, waited);
      EXPECT_EQ(always->SpinNs(what), PollPolicy::kForever);
      EXPECT_EQ(fixed->SpinNs(what), 7'000);
    }
  }
}

TEST(PollPolicy, GrowShrinkGrowsByNearMissesUpToTheMaximum) {
  const auto policy = GrowShrink(2, 0);
  EXPECT_EQ(policy->SpinNs(Waiting::kIdle), 0);
  for (const int64_t expected : {4'000, 8'000, 16'000, 32'000, 32'000}) {
    policy->Observe(Waiting::kIdle, kMax);
    EXPECT_EQ(policy->SpinNs(Waiting::kIdle), expected);
  }
}

TEST(PollPolicy, GrowShrinkStaysWhereItCatchesWhatComes) {
  const auto policy = GrowShrink(3, 0);
  policy->Observe(Waiting::kIdle, 10);
  policy->Observe(Waiting::kIdle, 4'001);
  ASSERT_EQ(policy->SpinNs(Waiting::kIdle), 12'000);
  for (const int64_t waited : {0, 1, 4'000, 12'000}) {
    policy->Observe(Waiting::kIdle, waited);
    EXPECT_EQ(policy->SpinNs(Waiting::kIdle), 12'000) << waited;
  }
}

TEST(PollPolicy, GrowShrinkShrinksAfterWhatNoLimitWouldHaveCaught) {
  const auto to_nothing = GrowShrink(2, 0);
  const auto by_half = GrowShrink(2, 2);
  for (PollPolicy* policy : {to_nothing.get(), by_half.get()}) {
    for (int i = 0; i < 4; ++i) policy->Observe(Waiting::kIdle, kMax);
    policy->Observe(Waiting::kIdle, kLate);
  }
  EXPECT_EQ(to_nothing->SpinNs(Waiting::kIdle), 0);
  EXPECT_EQ(by_half->SpinNs(Waiting::kIdle), 16'000);
}

// At depth 1 a wait for the disk and one for the guest follow each other for ever.
TEST(PollPolicy, GrowShrinkLearnsTheTwoWaitsApart) {
  const auto policy = GrowShrink(2, 0);
  for (int i = 0; i < 10; ++i) {
    policy->Observe(Waiting::kIdle, 3'000);
    policy->Observe(Waiting::kInFlight, 100'000);
  }
  EXPECT_EQ(policy->SpinNs(Waiting::kIdle), 4'000);
  EXPECT_EQ(policy->SpinNs(Waiting::kInFlight), 0);
}

TEST(PollPolicy, GrowShrinkWithoutAMaximumNeverLooks) {
  const auto policy =
      PollPolicy::Create({.kind = PollKind::kGrowShrink, .max_ns = 0, .grow = 2, .shrink = 0});
  for (const int64_t waited : {0, 1, 1'000}) {
    policy->Observe(Waiting::kIdle, waited);
    EXPECT_EQ(policy->SpinNs(Waiting::kIdle), 0);
  }
}

}  // namespace
}  // namespace ringside
