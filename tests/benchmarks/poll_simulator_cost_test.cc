// The poll simulator: what a wait costs, and what a policy is asked and told on the way.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "benchmarks/poll_simulator/cost_model.h"
#include "benchmarks/poll_simulator/replay.h"
#include "benchmarks/poll_simulator/simulation.h"

namespace ringside {
namespace {

constexpr int64_t kWake = 6'000;
constexpr int64_t kSleepCpu = 4'000;
constexpr SleepCost kSleep = {.wake_ns = kWake, .cpu_ns = kSleepCpu};

MATCHER_P(Burns, cpu_ns, "") {
  return arg.cpu_ns == cpu_ns;
}
MATCHER_P(Adds, latency_ns, "") {
  return arg.latency_ns == latency_ns;
}
MATCHER_P(Spins, spun_ns, "") {
  return arg.spun_ns == spun_ns;
}
MATCHER_P2(IsWoken, by_event, by_timer, "") {
  return arg.event_woke == by_event && arg.timer_woke == by_timer;
}
using ::testing::AllOf;
using ::testing::ElementsAre;

WaitCharge Charge(const WaitPlan& plan, int64_t waited_ns) {
  return ChargeOf(plan, waited_ns, kSleep);
}

// ---- One wait ----

TEST(WaitChargeTest, SleepingAtOnceCostsASleep) {
  EXPECT_THAT(Charge({}, 1), AllOf(Burns(kSleepCpu), Adds(kWake), Spins(0), IsWoken(true, false)));
  EXPECT_THAT(Charge({}, 1'000'000), AllOf(Burns(kSleepCpu), Adds(kWake)));
}

TEST(WaitChargeTest, WhatComesWhileLookingCostsTheLookOnly) {
  for (const int64_t waited_ns : {0, 1, 7'000, 10'000}) {
    EXPECT_THAT(Charge({.spin_ns = 10'000}, waited_ns),
                AllOf(Burns(waited_ns), Adds(0), Spins(waited_ns), IsWoken(false, false)));
  }
  EXPECT_THAT(Charge({.spin_ns = PollPolicy::kForever}, 5'000'000),
              AllOf(Burns(5'000'000), Adds(0), IsWoken(false, false)));
}

TEST(WaitChargeTest, WhatComesAfterLookingCostsTheLookAndASleep) {
  EXPECT_THAT(Charge({.spin_ns = 10'000}, 10'001),
              AllOf(Burns(10'000 + kSleepCpu), Adds(kWake), Spins(10'000), IsWoken(true, false)));
}

constexpr WaitPlan kDoze = {.doze_ns = 50'000, .spin_ns = 10'000};

TEST(WaitChargeTest, WhatEndsADozeCostsASleep) {
  for (const int64_t waited_ns : {1, 50'000}) {
    EXPECT_THAT(Charge(kDoze, waited_ns),
                AllOf(Burns(kSleepCpu), Adds(kWake), Spins(0), IsWoken(true, false)));
  }
  EXPECT_THAT(Charge({.doze_ns = PollPolicy::kForever}, 1'000'000'000),
              AllOf(Burns(kSleepCpu), Adds(kWake), IsWoken(true, false)));
}

TEST(WaitChargeTest, WhatComesWhileADozeEndsIsFoundOnceTheThreadRuns) {
  EXPECT_THAT(Charge(kDoze, 50'001),
              AllOf(Burns(kSleepCpu), Adds(kWake - 1), Spins(0), IsWoken(false, true)));
  EXPECT_THAT(Charge(kDoze, 50'000 + kWake),
              AllOf(Burns(kSleepCpu), Adds(0), Spins(0), IsWoken(false, true)));
}

TEST(WaitChargeTest, LookingAfterADozeBeginsWhenTheThreadRuns) {
  EXPECT_THAT(Charge(kDoze, 50'000 + kWake + 10'000),
              AllOf(Burns(kSleepCpu + 10'000), Adds(0), Spins(10'000), IsWoken(false, true)));
  EXPECT_THAT(
      Charge(kDoze, 50'000 + kWake + 10'001),
      AllOf(Burns(2 * kSleepCpu + 10'000), Adds(kWake), Spins(10'000), IsWoken(true, true)));
}

TEST(WaitCostTest, CpuTimeHasAPrice) {
  EXPECT_EQ(CostOf({.cpu_ns = 3'000, .latency_ns = 500}, 1), 3'500);
  EXPECT_EQ(CostOf({.cpu_ns = 3'000, .latency_ns = 500}, 0.5), 2'000);
}

TEST(WaitCostTest, TheClairvoyantLooksOrSleepsAsCostsLess) {
  const CostModel model = {.sleep = kSleep};
  EXPECT_EQ(OptimumOf(9'999, model), 9'999);
  EXPECT_EQ(OptimumOf(10'001, model), 10'000);
  EXPECT_EQ(BreakEvenNs(model), 10'000);
  const CostModel cheap_cpu = {.sleep = kSleep, .price = 0.5};
  EXPECT_EQ(OptimumOf(9'000, cheap_cpu), 4'500);
  EXPECT_EQ(OptimumOf(100'000, cheap_cpu), 8'000);
  EXPECT_EQ(BreakEvenNs(cheap_cpu), 16'000);
}

TEST(WaitCostTest, TheClairvoyantWhoDozesWakesAsTheEventComes) {
  const CostModel model = {.sleep = kSleep};
  EXPECT_EQ(DozingOptimumOf(3'000, model), 3'000);
  EXPECT_EQ(DozingOptimumOf(kWake, model), kWake);  // too short to doze
  EXPECT_EQ(DozingOptimumOf(kWake + 1, model), kSleepCpu);
  EXPECT_EQ(DozingOptimumOf(1'000'000, {.sleep = kSleep, .price = 0.5}), 2'000);
}

// Polling for as long as a sleep costs: the bound on which `cost` falls back.
TEST(WaitCostTest, TheBreakEvenLimitNeverCostsMoreThanTwiceTheOptimum) {
  for (const double price : {0.25, 1.0, 4.0}) {
    const CostModel model = {.sleep = kSleep, .price = price};
    const WaitPlan plan = {.spin_ns = BreakEvenNs(model)};
    for (int64_t waited_ns = 1; waited_ns < 100'000; waited_ns += 499) {
      EXPECT_LE(CostOf(Charge(plan, waited_ns), price), 2 * OptimumOf(waited_ns, model))
          << waited_ns << " ns at price " << price;
    }
  }
}

// ---- Many waits ----

// Plans as it is told, and keeps what it is asked and told.
class ScriptedPolicy final : public PollPolicy {
 public:
  explicit ScriptedPolicy(const WaitPlan& plan) : plan_(plan) {}
  WaitPlan Plan(Waiting what, int64_t now_ns) override {
    asked_for.push_back(what);
    asked_at.push_back(now_ns);
    return plan_;
  }
  void Observe(const WaitOutcome& outcome) override { told.push_back(outcome); }
  void SetSleepCost(const SleepCost& cost) override { sleep_costs.push_back(cost.wake_ns); }

  std::vector<Waiting> asked_for;
  std::vector<int64_t> asked_at;
  std::vector<WaitOutcome> told;
  std::vector<int64_t> sleep_costs;

 private:
  const WaitPlan plan_;
};

Trace TraceOf(const std::vector<int64_t>& waits_ns) {
  Trace trace;
  for (const int64_t waited_ns : waits_ns) {
    trace.waits.push_back({.waited_ns = waited_ns, .busy_ns = 2'000, .ready = 2});
  }
  return trace;
}

TEST(ReplayTest, AddsUpByHand) {
  const auto fixed = PollPolicy::Create({.kind = PollKind::kFixed, .max_ns = 10'000});
  const Totals totals = Replay(TraceOf({5'000, 20'000, 10'000}), fixed.get(), {.sleep = kSleep});
  EXPECT_EQ(totals.waits, 3u);
  EXPECT_EQ(totals.cpu_ns, 5'000 + (10'000 + kSleepCpu) + 10'000);
  EXPECT_EQ(totals.latency_ns, kWake);
  EXPECT_EQ(totals.elapsed_ns, 35'000 + kWake + 3 * 2'000);
  EXPECT_EQ(totals.wake_ups, 1u);
  EXPECT_EQ(totals.timer_wake_ups, 0u);
  EXPECT_EQ(totals.cost_ns, 35'000);
  EXPECT_EQ(totals.optimum_ns, 5'000 + 10'000 + 10'000);
  EXPECT_EQ(totals.dozing_optimum_ns, 5'000 + 4'000 + 4'000);
  EXPECT_EQ(RelativeCost(totals), 1.4);
}

TEST(ReplayTest, NoPolicySleepsAtOnce) {
  const Totals totals = Replay(TraceOf({1, 50'000}), nullptr, {.sleep = kSleep, .price = 0.5});
  EXPECT_EQ(totals.cpu_ns, 2 * kSleepCpu);
  EXPECT_EQ(totals.wake_ups, 2u);
  EXPECT_EQ(totals.cost_ns, 2 * (kWake + kSleepCpu / 2));
}

// 0, then 4, 8 and 16 us, which catches the fourth; halved by what is beyond all limits.
TEST(ReplayTest, APolicyLearnsOnTheWay) {
  const auto policy = PollPolicy::Create({.kind = PollKind::kGrowShrink});
  const Totals totals = Replay(TraceOf({12'000, 12'000, 12'000, 12'000, 50'000, 12'000}),
                               policy.get(), {.sleep = kSleep});
  EXPECT_EQ(totals.cpu_ns, (0 + 4'000 + 8'000) + 12'000 + 16'000 + 8'000 + 5 * kSleepCpu);
  EXPECT_EQ(totals.wake_ups, 5u);
}

TEST(ReplayTest, APolicyIsAskedAndToldAsByAnIoThread) {
  Trace trace = TraceOf({10'000, 30'000, 40'000});
  trace.waits[1] = {.what = Waiting::kInFlight, .waited_ns = 30'000, .ready = 1};
  ScriptedPolicy policy({.doze_ns = 20'000, .spin_ns = 8'000});
  Replay(trace, &policy, {.sleep = kSleep});

  EXPECT_THAT(policy.asked_for, ElementsAre(Waiting::kIdle, Waiting::kInFlight, Waiting::kIdle));
  // The first ends in the doze, which adds the time to wake; the second while looking.
  const int64_t second = 10'000 + kWake + 2'000;
  const int64_t third = second + 30'000;
  EXPECT_THAT(policy.asked_at, ElementsAre(0, second, third));
  // Before all, and after each timer.
  EXPECT_THAT(policy.sleep_costs, ElementsAre(kWake, kWake, kWake));

  ASSERT_EQ(policy.told.size(), 3u);
  const std::vector<int64_t> spun_ns = {0, 4'000, 8'000};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(policy.told[i].what, trace.waits[i].what);
    EXPECT_EQ(policy.told[i].start_ns, policy.asked_at[i]);
    EXPECT_EQ(policy.told[i].waited_ns, trace.waits[i].waited_ns);
    EXPECT_EQ(policy.told[i].spun_ns, spun_ns[i]);
    EXPECT_EQ(policy.told[i].ready, trace.waits[i].ready);
    EXPECT_FALSE(policy.told[i].preempted);
  }
}

TEST(ReplayTest, AnAdversarySeesThePlanAndStartsAnewEachTime) {
  Trace trace = TraceOf({0, 0, 0});
  trace.adversary = [late_ns = int64_t{0}](const WaitPlan& plan) mutable {
    return plan.spin_ns + ++late_ns;
  };
  for (int round = 0; round < 2; ++round) {
    ScriptedPolicy policy({.spin_ns = 5'000});
    Replay(trace, &policy, {.sleep = kSleep});
    std::vector<int64_t> waited_ns;
    for (const WaitOutcome& outcome : policy.told) waited_ns.push_back(outcome.waited_ns);
    EXPECT_THAT(waited_ns, ElementsAre(5'001, 5'002, 5'003));
  }
}

// The optimum of the first two is 2 us, the cost 20; the third costs no more than it must.
TEST(ReplayTest, KeepsTheMostThatWasEverAboveTwiceTheOptimum) {
  const Totals totals = Replay(TraceOf({1'000, 1'000, 50'000}), nullptr, {.sleep = kSleep});
  EXPECT_EQ(totals.most_above_twice_ns, 20'000 - 4'000);
  EXPECT_EQ(totals.cost_ns - 2 * totals.optimum_ns, 30'000 - 24'000);
}

TEST(TotalsTest, AllAddUpButTheMost) {
  const Totals one = {.waits = 1,
                      .elapsed_ns = 2,
                      .cpu_ns = 3,
                      .latency_ns = 4,
                      .wake_ups = 5,
                      .timer_wake_ups = 6,
                      .cost_ns = 7,
                      .optimum_ns = 8,
                      .dozing_optimum_ns = 9,
                      .most_above_twice_ns = 10};
  Totals sum = one;
  sum += one;
  EXPECT_EQ(sum.waits, 2u);
  EXPECT_EQ(sum.elapsed_ns, 4);
  EXPECT_EQ(sum.cpu_ns, 6);
  EXPECT_EQ(sum.latency_ns, 8);
  EXPECT_EQ(sum.wake_ups, 10u);
  EXPECT_EQ(sum.timer_wake_ups, 12u);
  EXPECT_EQ(sum.cost_ns, 14);
  EXPECT_EQ(sum.optimum_ns, 16);
  EXPECT_EQ(sum.dozing_optimum_ns, 18);
  EXPECT_EQ(sum.most_above_twice_ns, 10);
  sum += {.most_above_twice_ns = 11};
  EXPECT_EQ(sum.most_above_twice_ns, 11);
}

TEST(RelativeCostTest, IsDefinedWhereTheOptimumIsNothing) {
  EXPECT_EQ(RelativeCost({}), 1);
  EXPECT_TRUE(std::isinf(RelativeCost({.cost_ns = 1})));
}

}  // namespace
}  // namespace ringside
