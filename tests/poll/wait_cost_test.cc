// What the plans of the cost policy are made from: what a wait costs, how long waits were.
#include <gtest/gtest.h>
#include <random>

#include "poll/recent_waits.h"
#include "poll/sleep_meter.h"
#include "poll/wait_cost.h"
#include "poll/wait_histogram.h"

namespace ringside {
namespace {

constexpr SleepCost kSleep = {.wake_ns = 20'000, .kick_ns = 40'000, .cpu_ns = 10'000};

TEST(WaitCost, OfLooking) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 2);
  const WaitPlan plan = {.spin_ns = 5'000};
  EXPECT_EQ(cost.sleeping(), 40'000);
  EXPECT_EQ(cost.plain_limit_ns(), 20'000);
  EXPECT_EQ(cost.Of(plan, 0), 0);
  EXPECT_EQ(cost.Of(plan, 5'000), 10'000);
  EXPECT_EQ(cost.Of(plan, 5'001), 50'000);
  EXPECT_EQ(cost.Of({}, 1), 40'000);
  EXPECT_EQ(cost.Best(1'000), 2'000);
  EXPECT_EQ(cost.Best(1'000'000), 40'000);
}

TEST(WaitCost, AKickCostsMoreThanACompletion) {
  EXPECT_EQ(WaitCost(kSleep, Waiting::kIdle, 1).sleeping(), 50'000);
  EXPECT_EQ(WaitCost(kSleep, Waiting::kInFlight, 1).sleeping(), 30'000);
}

TEST(WaitCost, OfADoze) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 1);
  const WaitPlan plan = {.doze_ns = 100'000, .spin_ns = 7'000};
  EXPECT_EQ(cost.Of(plan, 100'000), 30'000);           // it came too early
  EXPECT_EQ(cost.Of(plan, 105'000), 10'000 + 15'000);  // while the timer woke the thread
  EXPECT_EQ(cost.Of(plan, 120'000), 10'000);           // just then
  EXPECT_EQ(cost.Of(plan, 127'000), 10'000 + 7'000);   // looked for
  EXPECT_EQ(cost.Of(plan, 127'001), 10'000 + 7'000 + 30'000);
}

TEST(WaitHistogram, BucketsAreQuartersOfOctaves) {
  EXPECT_EQ(WaitHistogram::BucketOf(-5), 0u);
  EXPECT_EQ(WaitHistogram::BucketOf(0), 0u);
  EXPECT_EQ(WaitHistogram::BucketOf(INT64_MAX), WaitHistogram::kBuckets - 1);
  for (size_t bucket = 1; bucket < WaitHistogram::kBuckets; ++bucket) {
    const int64_t begin_ns = WaitHistogram::BeginNs(bucket);
    EXPECT_EQ(WaitHistogram::BucketOf(begin_ns), bucket);
    EXPECT_EQ(WaitHistogram::BucketOf(begin_ns - 1), bucket - 1);
    if (bucket == 1) continue;
    const auto before_ns = static_cast<double>(WaitHistogram::BeginNs(bucket - 1));
    EXPECT_LE(static_cast<double>(begin_ns), 1.26 * before_ns) << bucket;
  }
  EXPECT_EQ(WaitHistogram::BeginNs(5), 640);
}

TEST(WaitHistogram, TheBestLimitIsNearWhatAnyLimitCouldDo) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 1);
  std::mt19937_64 random(1);
  for (const double mean_ns : {5e3, 25e3, 60e3, 1e6}) {
    std::lognormal_distribution<> wait(std::log(mean_ns), 1);
    WaitHistogram histogram;
    std::vector<int64_t> waits;
    for (int i = 0; i < 2'000; ++i) {
      waits.push_back(static_cast<int64_t>(wait(random)));
      histogram.Add(waits.back());
    }
    const auto total = [&](int64_t limit_ns) {
      double sum = 0;
      for (const int64_t waited_ns : waits) sum += cost.Of({.spin_ns = limit_ns}, waited_ns);
      return sum;
    };
    double best = total(0);
    for (const int64_t waited_ns : waits) best = std::min(best, total(waited_ns));
    EXPECT_LE(total(histogram.BestLimitNs(cost)), 1.03 * best) << mean_ns;
  }
}

TEST(WaitHistogram, WhatIsOldFades) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 1);
  WaitHistogram histogram;
  for (int i = 0; i < 10'000; ++i) histogram.Add(5'000'000);
  EXPECT_EQ(histogram.BestLimitNs(cost), 0);
  histogram.FadeTo(100);
  EXPECT_NEAR(histogram.weight(WaitHistogram::BucketOf(5'000'000)), 100, 0.01);
  for (int i = 0; i < 1'000; ++i) histogram.Add(2'000);
  EXPECT_GE(histogram.BestLimitNs(cost), 2'000);
  histogram.FadeTo(2'000);  // there are fewer
  EXPECT_NEAR(histogram.weight(WaitHistogram::BucketOf(2'000)), 1'000, 0.01);
}

TEST(RecentWaits, ADozeCatchesWhatIsRegular) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 1);
  RecentWaits recent;
  for (size_t i = 0; i < RecentWaits::kWaits; ++i) {
    EXPECT_FALSE(recent.full());
    recent.Add(200'000 + 100 * static_cast<int64_t>(i));
  }
  EXPECT_TRUE(recent.full());
  const WaitPlan plan = recent.BestDoze(cost);
  EXPECT_NEAR(plan.doze_ns + kSleep.wake_ns, 198'000, 1'000);
  EXPECT_NEAR(plan.doze_ns + kSleep.wake_ns + plan.spin_ns, 205'200, 1'000);
}

TEST(RecentWaits, WhatIsSoonerThanATimerIsNotDozedFor) {
  RecentWaits recent;
  for (size_t i = 0; i < RecentWaits::kWaits; ++i) recent.Add(39'000);
  EXPECT_EQ(recent.BestDoze(WaitCost(kSleep, Waiting::kInFlight, 1)).doze_ns, 0);
}

// It weighs: the sooner half would make the later half wait for long.
TEST(RecentWaits, TheDozeMayLeaveSomeOut) {
  const WaitCost cost(kSleep, Waiting::kInFlight, 1);
  RecentWaits recent;
  for (size_t i = 0; i < RecentWaits::kWaits; ++i) recent.Add(i % 4 == 0 ? 100'000 : 900'000);
  const WaitPlan plan = recent.BestDoze(cost);
  EXPECT_GT(plan.doze_ns, 800'000);
}

TEST(SleepMeter, FollowsTheMiddleAndBelievesNoOutlier) {
  SleepMeter meter({.wake_ns = 8'000, .kick_ns = 8'000, .cpu_ns = 4'000});
  meter.Late(100'000'000);
  EXPECT_EQ(meter.cost().wake_ns, 9'000);
  meter.Late(8'900);
  EXPECT_EQ(meter.cost().wake_ns, 8'900);
  EXPECT_EQ(meter.cost().kick_ns, 8'900) << "no less than waking by an interrupt";
  meter.Kicked(100'000);
  EXPECT_EQ(meter.cost().kick_ns, 11'125);
  meter.AtLeast(Waiting::kIdle, 10'000);
  EXPECT_EQ(meter.cost().kick_ns, 11'125) << "which was known";
  meter.AtLeast(Waiting::kIdle, 12'000);
  EXPECT_EQ(meter.cost().kick_ns, 12'000);
  for (int i = 0; i < 100; ++i) meter.Cpu(i % 3 == 0 ? 1'000'000 : 9'000);
  EXPECT_NEAR(static_cast<double>(meter.cost().cpu_ns), 9'000, 1'200);
  for (int i = 0; i < 1'000; ++i) meter.Late(-1);
  EXPECT_EQ(meter.cost().wake_ns, 0);
  for (int i = 0; i < 1'000; ++i) meter.Late(5'000);
  EXPECT_EQ(meter.cost().wake_ns, 5'000);
}

}  // namespace
}  // namespace ringside
