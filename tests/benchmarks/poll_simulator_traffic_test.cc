// The poll simulator's waits: those made up are what their names say, and adversaries strike where
// they mean to.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

#include "benchmarks/poll_simulator/adversaries.h"
#include "benchmarks/poll_simulator/families.h"
#include "benchmarks/poll_simulator/generators.h"

namespace ringside {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

constexpr size_t kCount = 50'000;
constexpr int64_t kUs = 1'000;

// ---- Made up beforehand ----

std::vector<double> Lengths(const std::vector<Wait>& waits) {
  std::vector<double> lengths;
  for (const Wait& wait : waits) lengths.push_back(static_cast<double>(wait.waited_ns));
  return lengths;
}

double Mean(const std::vector<double>& lengths) {
  double sum = 0;
  for (const double length : lengths) sum += length;
  return sum / static_cast<double>(lengths.size());
}

double Deviation(const std::vector<double>& lengths) {
  const double mean = Mean(lengths);
  double squares = 0;
  for (const double length : lengths) squares += (length - mean) * (length - mean);
  return std::sqrt(squares / static_cast<double>(lengths.size()));
}

double Quantile(std::vector<double> lengths, double share) {
  std::ranges::sort(lengths);
  return lengths[static_cast<size_t>(share * static_cast<double>(lengths.size()))];
}

double ShareBelow(const std::vector<double>& lengths, double limit) {
  return static_cast<double>(
             std::ranges::count_if(lengths, [limit](double x) { return x < limit; })) /
         static_cast<double>(lengths.size());
}

MATCHER_P2(IsAbout, value, share, "") {
  return std::abs(arg - value) <= share * value;
}

TEST(GeneratorTest, PeriodicHasItsPeriodAndItsJitter) {
  Random random(1);
  const auto lengths = Lengths(Periodic(50 * kUs, 0.02, kCount, random));
  EXPECT_THAT(Mean(lengths), IsAbout(50e3, 0.002));
  EXPECT_THAT(Deviation(lengths), IsAbout(1e3, 0.03));
}

TEST(GeneratorTest, PoissonIsMemoryless) {
  Random random(1);
  const auto lengths = Lengths(Poisson(20 * kUs, kCount, random));
  EXPECT_THAT(Mean(lengths), IsAbout(20e3, 0.03));
  EXPECT_THAT(Deviation(lengths), IsAbout(20e3, 0.05));
  EXPECT_THAT(Quantile(lengths, 0.5), IsAbout(20e3 * std::log(2), 0.03));
}

TEST(GeneratorTest, BurstsHaveTheirLengthAndTheirPauses) {
  Random random(1);
  const auto lengths = Lengths(
      OnOff({.within_ns = kUs, .between_ns = 10'000 * kUs, .mean_length = 20}, kCount, random));
  EXPECT_THAT(1 - ShareBelow(lengths, 50e3), IsAbout(1 / 20.0, 0.1));
  EXPECT_THAT(Mean(lengths), IsAbout(0.95 * 1e3 + 0.05 * 10e6, 0.1));
}

TEST(GeneratorTest, BimodalHasTwoModes) {
  Random random(1);
  const auto lengths = Lengths(
      Bimodal({.short_ns = 8 * kUs, .long_ns = 150 * kUs, .short_share = 0.8}, kCount, random));
  EXPECT_THAT(ShareBelow(lengths, 50e3), IsAbout(0.8, 0.02));
  EXPECT_EQ(ShareBelow(lengths, 12e3), ShareBelow(lengths, 70e3));
  EXPECT_THAT(Quantile(lengths, 0.4), IsAbout(8e3, 0.02));
  EXPECT_THAT(Quantile(lengths, 0.9), IsAbout(150e3, 0.02));
}

TEST(GeneratorTest, DriftingGoesUpAndDownAgain) {
  Random random(1);
  const auto lengths = Lengths(Drifting(3 * kUs, 300 * kUs, kCount, kCount, random));
  const auto mean_around = [&](double place) {
    const auto middle = lengths.begin() + static_cast<long>(place * static_cast<double>(kCount));
    return Mean({middle - 500, middle + 500});
  };
  EXPECT_THAT(mean_around(0.01), IsAbout(3e3, 0.25));
  EXPECT_THAT(mean_around(0.25), IsAbout(30e3, 0.15));  // the middle by ratio
  EXPECT_THAT(mean_around(0.5), IsAbout(300e3, 0.15));
  EXPECT_THAT(mean_around(0.75), IsAbout(30e3, 0.15));
}

TEST(GeneratorTest, ParetoHasItsLeastAndItsTail) {
  Random random(1);
  const auto lengths = Lengths(Pareto(3 * kUs, 1.5, kCount, random));
  EXPECT_THAT(lengths, Each(AllOf(Ge(3e3), Le(1e9))));
  EXPECT_THAT(Quantile(lengths, 0.5), IsAbout(3e3 * std::pow(2, 1 / 1.5), 0.03));
  EXPECT_THAT(Quantile(lengths, 0.99), IsAbout(3e3 * std::pow(100, 1 / 1.5), 0.15));
}

TEST(GeneratorTest, LognormalHasItsMedianAndItsSpread) {
  Random random(1);
  const auto lengths = Lengths(Lognormal(12 * kUs, 2, kCount, random));
  EXPECT_THAT(Quantile(lengths, 0.5), IsAbout(12e3, 0.05));
  EXPECT_THAT(Quantile(lengths, 0.841), IsAbout(12e3 * std::exp(2), 0.08));  // one sigma up
}

TEST(GeneratorTest, TheClosedLoopAlternatesBetweenDiskAndGuest) {
  Random random(1);
  const std::vector<Wait> waits = ClosedLoop(15 * kUs, 40 * kUs, kCount, random);
  std::vector<double> disk, guest;
  for (size_t i = 0; i < waits.size(); ++i) {
    const bool in_flight = i % 2 == 0;
    ASSERT_EQ(waits[i].what, in_flight ? Waiting::kInFlight : Waiting::kIdle);
    ASSERT_EQ(waits[i].ready, in_flight ? 1u : 2u);
    (in_flight ? disk : guest).push_back(static_cast<double>(waits[i].waited_ns));
  }
  EXPECT_THAT(Quantile(disk, 0.5), IsAbout(15e3, 0.02));
  EXPECT_THAT(Mean(guest), IsAbout(40e3, 0.03));
  EXPECT_THAT(guest, Each(Ge(4e3)));
}

TEST(GeneratorTest, PhasesFollowEachOther) {
  Random random(1);
  const auto lengths = Lengths(PhaseChange(
      {.idle_ns = 2'000 * kUs, .idle_waits = 1'000, .busy_ns = 4 * kUs, .busy_waits = 4'000},
      kCount, random));
  for (const size_t start : {0, 5'000, 45'000}) {
    const auto idle = lengths.begin() + static_cast<long>(start);
    EXPECT_THAT(Mean({idle, idle + 1'000}), IsAbout(2e6, 0.15));
    EXPECT_THAT(Mean({idle + 1'000, idle + 5'000}), IsAbout(4e3, 0.1));
  }
}

TEST(GeneratorTest, TwoSourcesComeAtTheirOwnRates) {
  Random random(1);
  const std::vector<Wait> waits = TwoSources(30 * kUs, 300 * kUs, kCount, random);
  double elapsed_ns = 0;
  std::map<uint64_t, double> events;
  for (const Wait& wait : waits) {
    elapsed_ns += static_cast<double>(wait.waited_ns + wait.busy_ns);
    ++events[wait.ready];
  }
  EXPECT_EQ(events.size(), 2u);
  // Less what came while the thread worked.
  EXPECT_THAT(events[2] * 30e3 / elapsed_ns, AllOf(Ge(0.85), Le(1)));
  EXPECT_THAT(events[4] * 300e3 / elapsed_ns, AllOf(Ge(0.85), Le(1)));
}

TEST(GeneratorTest, WhatComesDuringWorkIsWorkedOffWithoutAWait) {
  Random random(1);
  const std::vector<Wait> waits = TwoSources(5 * kUs, 50 * kUs, kCount, random);
  double elapsed_ns = 0, busy_ns = 0;
  for (const Wait& wait : waits) {
    elapsed_ns += static_cast<double>(wait.waited_ns + wait.busy_ns);
    busy_ns += static_cast<double>(wait.busy_ns);
  }
  const double events = elapsed_ns / 5e3 + elapsed_ns / 50e3;
  EXPECT_THAT(busy_ns, IsAbout(events * kBusyNs, 0.03));
}

TEST(GeneratorTest, NothingIsShorterThanANanosecond) {
  Random random(1);
  EXPECT_THAT(Lengths(Poisson(1, kCount, random)), Each(Ge(1)));
  EXPECT_THAT(Lengths(Periodic(2, 5, kCount, random)), Each(Ge(1)));
}

// ---- Adversaries ----

TEST(AdversaryTest, BeyondTheLimitIsBeyondIt) {
  const Adversary adversary = JustBeyondTheLimit(200, 6'000);
  EXPECT_EQ(adversary({.spin_ns = 12'000}), 12'200);
  EXPECT_EQ(adversary({.doze_ns = 50'000, .spin_ns = 4'000}), 60'200);
  EXPECT_EQ(adversary({}), 1'000);
  EXPECT_EQ(adversary({.spin_ns = PollPolicy::kForever}), 1'000'000);
  EXPECT_EQ(adversary({.doze_ns = PollPolicy::kForever}), 1'000'000);
}

TEST(AdversaryTest, InsideTheDozeIsJustBeforeItsEnd) {
  const Adversary adversary = JustInsideTheDoze(1'000, 150'000);
  EXPECT_EQ(adversary({.doze_ns = 90'000, .spin_ns = 8'000}), 89'000);
  EXPECT_EQ(adversary({.doze_ns = 500}), 1'000);
  EXPECT_EQ(adversary({.doze_ns = PollPolicy::kForever}), 999'000);
  EXPECT_EQ(adversary({.spin_ns = 8'000}), 150'000);
}

constexpr Trains kTrains = {.short_ns = 5'000, .long_ns = 200'000, .longest_train = 8};

TEST(AdversaryTest, ATrainTurnsWithTheWaitWhosePlanHasChanged) {
  const Adversary adversary = TrainsAgainstTheLearner(kTrains, Random(3));
  for (int train = 0; train < 20; ++train) {
    const int64_t spin_ns = train % 2 == 0 ? 10'000 : 7'000;
    for (int i = 0; i < kTrains.longest_train; ++i) {
      ASSERT_EQ(adversary({.spin_ns = spin_ns}), train % 2 == 0 ? 5'000 : 200'000) << train;
    }
  }
}

TEST(AdversaryTest, ATrainDoesNotTurnForALittleChange) {
  const Adversary adversary = TrainsAgainstTheLearner(kTrains, Random(3));
  for (int i = 0; i < 4 * kTrains.longest_train; ++i) {
    ASSERT_EQ(adversary({.spin_ns = i % 2 == 0 ? 10'000 : 8'000}), 5'000);
  }
}

TEST(AdversaryTest, TrainsHaveRandomLengths) {
  const Adversary adversary = TrainsAgainstTheLearner(kTrains, Random(3));
  std::map<int, int> lengths;
  int64_t last_ns = 5'000;
  int length = 0;
  for (int i = 0; i < 5'000; ++i) {
    // Other than any before: a train turns as soon as it may.
    const int64_t wait_ns = adversary({.spin_ns = int64_t{1'000} << (i % 40)});
    if (wait_ns != last_ns) ++lengths[std::exchange(length, 0)];
    last_ns = wait_ns;
    ++length;
  }
  ASSERT_EQ(lengths.size(), 8u);
  for (int expected = 1; expected <= 8; ++expected) EXPECT_GT(lengths[expected], 20) << expected;
}

TEST(AdversaryTest, TrainsTurnAgainstWhoNeverChanges) {
  const Adversary adversary = TrainsAgainstTheLearner(kTrains, Random(3));
  for (int train = 0; train < 10; ++train) {
    for (int i = 0; i < 4 * kTrains.longest_train; ++i) {
      ASSERT_EQ(adversary({.spin_ns = 7'000}), train % 2 == 0 ? 5'000 : 200'000);
    }
  }
}

TEST(AdversaryTest, NearTheSleepCostIsOnEitherSide) {
  const Adversary adversary = AroundTheSleepCost(10'000, 0.1, Random(1));
  std::map<int64_t, int> lengths;
  for (int i = 0; i < 1'000; ++i) ++lengths[adversary({})];
  ASSERT_EQ(lengths.size(), 2u);
  EXPECT_GT(lengths[9'000], 400);
  EXPECT_GT(lengths[11'000], 400);
}

// ---- Families ----

constexpr CostModel kModel = {.sleep = {.wake_ns = 6'000, .cpu_ns = 4'000}};

TEST(FamilyTest, EveryOneHasTracesOfTheLengthAskedFor) {
  for (const std::string& name : FamilyNames()) {
    const Family family = MakeFamily(name, {.waits = 100}, kModel);
    EXPECT_EQ(family.name, name);
    EXPECT_GE(family.traces.size(), 3u) << name;
    std::set<std::string> names;
    for (const Trace& trace : family.traces) {
      names.insert(trace.name);
      EXPECT_EQ(trace.waits.size(), 100u) << trace.name;
      EXPECT_EQ(trace.adversary != nullptr, name.starts_with("adversary-")) << trace.name;
    }
    EXPECT_EQ(names.size(), family.traces.size()) << name;
  }
}

Family PoissonFamily(uint64_t seed) {
  return MakeFamily("poisson", {.waits = 100, .seed = seed}, kModel);
}

TEST(FamilyTest, TheSeedDecides) {
  const auto first_trace = [](uint64_t seed) {
    return Lengths(PoissonFamily(seed).traces[0].waits);
  };
  EXPECT_EQ(first_trace(1), first_trace(1));
  EXPECT_NE(first_trace(1), first_trace(2));
}

TEST(FamilyTest, EachTraceHasRandomNumbersOfItsOwn) {
  const Family family = PoissonFamily(1);
  const auto at_5us = Lengths(family.traces[0].waits), at_20us = Lengths(family.traces[1].waits);
  std::vector<double> ratios;
  for (size_t i = 0; i < at_5us.size(); ++i) ratios.push_back(at_20us[i] / at_5us[i]);
  EXPECT_GT(Deviation(ratios), 1);
}

}  // namespace
}  // namespace ringside
