// The policy that plans by what looking and sleeping cost, without a thread or a clock.
#include "poll/cost_policy.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace ringside {
namespace {

// A sleep costs 30 us of latency if a completion ends it, and 50 us if a kick does.
constexpr SleepCost kSleep = {.wake_ns = 20'000, .kick_ns = 40'000, .cpu_ns = 10'000};

class Replay {
 public:
  explicit Replay(const PollConfig& config = {}, const SleepCost& sleep = kSleep)
      : policy_(config),
        costs_{WaitCost(sleep, Waiting::kIdle, config.price),
               WaitCost(sleep, Waiting::kInFlight, config.price)},
        timer_late_ns_(sleep.wake_ns) {
    policy_.SetSleepCost(sleep);
  }

  WaitPlan Plan(Waiting what = Waiting::kInFlight) { return plan_ = policy_.Plan(what, now_ns_); }

  void Wait(int64_t waited_ns, Waiting what = Waiting::kInFlight) {
    Plan(what);
    Observe(waited_ns, what);
  }

  void Observe(int64_t waited_ns, Waiting what, bool preempted = false) {
    const int64_t awake_ns = plan_.doze_ns == 0 ? 0 : plan_.doze_ns + timer_late_ns_;
    const int64_t spun_ns = std::clamp<int64_t>(waited_ns - awake_ns, 0, plan_.spin_ns);
    policy_.Observe({.what = what,
                     .preempted = preempted,
                     .start_ns = now_ns_,
                     .waited_ns = waited_ns,
                     .spun_ns = spun_ns});
    const WaitCost& cost = costs_[static_cast<size_t>(what)];
    total_ns_ += cost.Of(plan_, waited_ns);
    best_ns_ += cost.Best(waited_ns);
    spun_ns_ += spun_ns;
    now_ns_ += waited_ns;
  }

  void Work(int64_t ns) { now_ns_ += ns; }

  const WaitCost& cost(Waiting what) const { return costs_[static_cast<size_t>(what)]; }
  const WaitPlan& plan() const { return plan_; }
  double total_ns() const { return total_ns_; }
  double best_ns() const { return best_ns_; }
  int64_t spun_ns() const { return spun_ns_; }
  int64_t now_ns() const { return now_ns_; }

 private:
  CostPolicy policy_;
  const std::array<WaitCost, 2> costs_;
  const int64_t timer_late_ns_;
  WaitPlan plan_;
  double total_ns_ = 0;
  double best_ns_ = 0;
  int64_t spun_ns_ = 0;
  int64_t now_ns_ = 0;
};

TEST(CostPolicy, BeforeItKnowsAnythingItLooksForWhatASleepCosts) {
  Replay replay;
  EXPECT_EQ(replay.Plan(Waiting::kInFlight).spin_ns, 30'000);
  EXPECT_EQ(replay.Plan(Waiting::kIdle).spin_ns, 50'000);
  EXPECT_EQ(replay.plan().doze_ns, 0);
}

TEST(CostPolicy, ShortWaitsAreLookedFor) {
  Replay replay;
  for (int i = 0; i < 1000; ++i) replay.Wait(3'000 + i);
  EXPECT_GE(replay.Plan().spin_ns, 4'000);
  EXPECT_DOUBLE_EQ(replay.total_ns(), replay.best_ns());
}

TEST(CostPolicy, LongOnesAreSleptAtOnce) {
  Replay replay;
  std::mt19937_64 random(1);
  std::exponential_distribution<> wait(1 / 5e6);
  for (int i = 0; i < 1000; ++i) replay.Wait(static_cast<int64_t>(wait(random)));
  EXPECT_EQ(replay.Plan().spin_ns, 0);
  EXPECT_LE(replay.total_ns(), 1.05 * replay.best_ns());
}

TEST(CostPolicy, WhereMostComeSoonItLooksLongerThanASleepCosts) {
  Replay replay;
  std::mt19937_64 random(1);
  std::exponential_distribution<> wait(1 / 15e3);
  for (int i = 0; i < 2000; ++i) replay.Wait(static_cast<int64_t>(wait(random)));
  EXPECT_GT(replay.Plan().spin_ns, 60'000);
}

TEST(CostPolicy, RegularOnesAreDozedFor) {
  Replay replay;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> wait(995'000, 1'005'000);
  for (int i = 0; i < 200; ++i) replay.Wait(wait(random));
  const WaitPlan plan = replay.Plan();
  EXPECT_GT(plan.doze_ns, 900'000);
  EXPECT_LE(plan.doze_ns + kSleep.wake_ns, 995'000);
  EXPECT_GE(plan.doze_ns + kSleep.wake_ns + plan.spin_ns, 1'005'000);
  EXPECT_LE(replay.total_ns(), replay.best_ns());  // who may not doze does no better
}

// Requests come at a steady rate, however long each took to serve: only from one to the next is it
// always the same time.
TEST(CostPolicy, ASteadyRateIsDozedFor) {
  Replay replay;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> served(10'000, 400'000);
  const auto serve_and_wait = [&] {
    const int64_t served_ns = served(random);
    replay.Work(served_ns);
    replay.Wait(1'000'000 - served_ns);
  };
  for (int i = 0; i < 100; ++i) serve_and_wait();
  const double total_ns = replay.total_ns();
  const double best_ns = replay.best_ns();
  for (int i = 0; i < 100; ++i) serve_and_wait();
  EXPECT_LE(replay.total_ns() - total_ns, 0.7 * (replay.best_ns() - best_ns));
}

TEST(CostPolicy, TheTwoWaitsAreLearnedApart) {
  Replay replay;
  for (int i = 0; i < 500; ++i) {
    replay.Wait(2'000, Waiting::kIdle);
    replay.Wait(i % 2 == 0 ? 400'000 : 4'000'000, Waiting::kInFlight);
  }
  EXPECT_GE(replay.Plan(Waiting::kIdle).spin_ns, 2'000);
  EXPECT_EQ(replay.Plan(Waiting::kInFlight).spin_ns, 0);
}

TEST(CostPolicy, AChangeOfPhaseCostsAFewSleeps) {
  Replay replay;
  for (int i = 0; i < 500; ++i) replay.Wait(3'000'000 + 100'000 * (i % 7));
  const double over_ns = replay.total_ns() - replay.best_ns();
  for (int i = 0; i < 500; ++i) replay.Wait(2'000);
  const double sleep_ns = replay.cost(Waiting::kInFlight).sleeping();
  EXPECT_LE(replay.total_ns() - replay.best_ns() - over_ns, 10 * sleep_ns);
}

TEST(CostPolicy, ThePriceDecidesHowLongIsTooLong) {
  const auto limit_ns = [](double price) {
    Replay replay({.price = price});
    for (int i = 0; i < 500; ++i) replay.Wait(i % 2 == 0 ? 20'000 : 90'000);
    return replay.Plan().spin_ns;
  };
  EXPECT_GE(limit_ns(0.1), 90'000);
  EXPECT_EQ(limit_ns(10), 0);
}

TEST(CostPolicy, LookingStaysWithinItsShareOfACpu) {
  for (const double share : {0.05, 0.2, 0.5}) {
    Replay replay({.cpu_max = share});
    for (int i = 0; i < 20'000; ++i) replay.Wait(10'000);
    const auto now_ns = static_cast<double>(replay.now_ns());
    EXPECT_LE(static_cast<double>(replay.spun_ns()), share * (now_ns + 11e6)) << share;
    EXPECT_GE(static_cast<double>(replay.spun_ns()), 0.8 * share * now_ns) << share;
  }
}

// Also for a guest that always has an interrupt held for as long as that may be, where the plans
// alone would not poll, and while the thread leaves its processor to another one.
TEST(CostPolicy, PollingForHeldInterruptsStaysWithinItsShareOfACpu) {
  constexpr int64_t kHeldNs = 5'000'000;
  for (const double share : {0.02, 0.1}) {
    CostPolicy policy({.cpu_max = share});
    policy.SetSleepCost(kSleep);
    std::mt19937 random(1);
    const int64_t start_ns = 1'000'000'000;
    int64_t now_ns = start_ns;
    int64_t spun_ns = 0;
    for (int i = 0; i < 5'000; ++i) {
      const WaitPlan plan = policy.Plan(Waiting::kInFlight, now_ns);
      const int64_t waited_ns = kHeldNs + random() % 20'000'000;
      const int64_t for_ns = plan.may_hold ? kHeldNs : std::min(plan.spin_ns, waited_ns);
      policy.Observe({.what = Waiting::kInFlight,
                      .preempted = random() % 8 == 0,
                      .start_ns = now_ns,
                      .waited_ns = waited_ns,
                      .spun_ns = for_ns});
      spun_ns += for_ns;
      now_ns += waited_ns;
    }
    const auto all_ns = static_cast<double>(now_ns - start_ns);
    EXPECT_LE(static_cast<double>(spun_ns), share * (all_ns + 11e6) + kHeldNs) << share;
    EXPECT_GE(static_cast<double>(spun_ns), 0.8 * share * all_ns) << share;
  }
}

TEST(CostPolicy, ItLeavesTheCpuToAThreadThatNeededItAndForLongerIfItDoesAgain) {
  constexpr int64_t kMs = 1'000'000;
  Replay replay;
  for (int i = 0; i < 100; ++i) replay.Wait(5'000);
  const auto leaves_for_ns = [&] {
    EXPECT_GT(replay.Plan().spin_ns, 0);
    replay.Observe(2 * kMs, Waiting::kInFlight, true);
    const int64_t start_ns = replay.now_ns();
    while (replay.Plan().spin_ns == 0) replay.Observe(100'000, Waiting::kInFlight);
    return replay.now_ns() - start_ns;
  };
  for (const int64_t expected_ms : {10, 20, 40, 80, 160, 160}) {
    EXPECT_EQ(leaves_for_ns(), expected_ms * kMs);
  }
  replay.Work(200 * kMs);
  EXPECT_EQ(leaves_for_ns(), 10 * kMs);
}

// What is slept for another reason than what it costs is no fault of the plans, and must not make
// the guard take over from them.
class CostPolicyForced : public ::testing::Test {
 protected:
  // A wait of 1 us, which costs a whole sleep too much unless it is looked for. Returns why it was
  // planned as it was.
  WaitReason Wait(CostPolicy& policy, bool preempted = false) {
    const WaitExplanation before = policy.Explain().of(Waiting::kInFlight);
    const WaitPlan plan = policy.Plan(Waiting::kInFlight, now_ns_);
    policy.Observe({.what = Waiting::kInFlight,
                    .preempted = preempted,
                    .start_ns = now_ns_,
                    .waited_ns = 1'000,
                    .spun_ns = std::min<int64_t>(plan.spin_ns, 1'000)});
    now_ns_ += 1'000;
    const WaitExplanation after = policy.Explain().of(Waiting::kInFlight);
    regret_rose_ns_ = after.regret_ns - before.regret_ns;
    for (size_t reason = 0; reason < kWaitReasons; ++reason) {
      if (after.waits[reason] > before.waits[reason]) return static_cast<WaitReason>(reason);
    }
    ADD_FAILURE() << "the wait was not counted";
    return WaitReason::kGuard;
  }

  int64_t now_ns_ = 1'000'000'000;
  int64_t regret_rose_ns_ = 0;
};

TEST_F(CostPolicyForced, ToLeaveTheCpuToOthersIsNotRegretted) {
  CostPolicy policy({});
  policy.SetSleepCost(kSleep);
  Wait(policy, /*preempted=*/true);
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_EQ(Wait(policy), WaitReason::kPreempted);
    ASSERT_EQ(regret_rose_ns_, 0);
  }
  now_ns_ += 200'000'000;
  EXPECT_EQ(Wait(policy), WaitReason::kPolicy);
}

TEST_F(CostPolicyForced, ToKeepTheCeilingIsNotRegretted) {
  CostPolicy policy({.cpu_max = 0.01});
  policy.SetSleepCost(kSleep);
  int at_ceiling = 0;
  for (int i = 0; i < 1'000; ++i) {
    if (Wait(policy) != WaitReason::kCeiling) continue;
    ++at_ceiling;
    ASSERT_EQ(regret_rose_ns_, 0);
  }
  EXPECT_GT(at_ceiling, 500);
}

TEST(CostPolicy, ItExplainsWhatItDoesAndWhy) {
  CostPolicy policy({});
  policy.SetSleepCost(kSleep);
  int64_t now_ns = 0;
  for (int i = 0; i < 1'000; ++i) {
    policy.Plan(Waiting::kInFlight, now_ns);
    policy.Observe({.what = Waiting::kInFlight, .start_ns = now_ns, .waited_ns = 1'000'000});
    now_ns += 1'001'000;
  }
  policy.Plan(Waiting::kIdle, now_ns);
  policy.Observe({.what = Waiting::kIdle, .preempted = true, .start_ns = now_ns});
  policy.Plan(Waiting::kIdle, now_ns);
  const PollExplanation explanation = policy.Explain();

  const WaitExplanation& in_flight = explanation.of(Waiting::kInFlight);
  EXPECT_EQ(in_flight.waits_by(WaitReason::kLearning), RecentWaits::kWaits);
  EXPECT_EQ(in_flight.waits_by(WaitReason::kPolicy), 1'000 - RecentWaits::kWaits);
  ASSERT_EQ(in_flight.candidates.size(), 5u);
  const WaitExplanation::Candidate& doze = in_flight.candidates[3];
  EXPECT_STREQ(doze.name, "doze");
  EXPECT_EQ(doze.plan.doze_ns, in_flight.plan.doze_ns);
  EXPECT_GT(doze.plan.doze_ns, 900'000);
  EXPECT_LT(doze.cost_ns, in_flight.candidates.front().cost_ns);
  ASSERT_EQ(in_flight.histogram.size(), 1u);
  EXPECT_LE(in_flight.histogram.front().from_ns, 1'000'000);
  EXPECT_GT(in_flight.histogram.front().to_ns, 1'000'000);
  EXPECT_LT(in_flight.regret_ns, 0);
  EXPECT_EQ(in_flight.regret_budget_ns, 32 * 30'000);

  const WaitExplanation& idle = explanation.of(Waiting::kIdle);
  EXPECT_EQ(idle.waits_by(WaitReason::kLearning), 1u);
  EXPECT_EQ(idle.waits_by(WaitReason::kPreempted), 1u);
  EXPECT_EQ(idle.plan.spin_ns, 50'000);
}

// Whoever chooses the waits, knowing the plan for each before it begins: the total stays within
// twice what one who knows them all would pay, and the budget.
class CostPolicyAdversary : public ::testing::Test {
 protected:
  using Adversary = std::function<int64_t(const WaitPlan&, const WaitCost&, std::mt19937_64&)>;

  static std::vector<int64_t> Temptations(const WaitPlan& plan, const WaitCost& cost) {
    const int64_t awake_ns = plan.doze_ns == 0 ? 0 : plan.doze_ns + cost.timer_late_ns();
    std::vector<int64_t> waits = {50'000'000, 0, 1, cost.plain_limit_ns(),
                                  cost.plain_limit_ns() + 1};
    for (const int64_t edge : {plan.doze_ns, awake_ns, awake_ns + plan.spin_ns}) {
      for (const int64_t near : {-1, 0, 1}) waits.push_back(std::max<int64_t>(0, edge + near));
    }
    return waits;
  }

  static void Play(const Adversary& adversary, const PollConfig& config = {}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Replay replay(config);
      std::mt19937_64 random(seed);
      for (int i = 0; i < 5'000; ++i) {
        for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
          const WaitPlan plan = replay.Plan(what);
          replay.Observe(adversary(plan, replay.cost(what), random), what);
        }
        const double budget_ns = CostPolicy::BudgetNs(replay.cost(Waiting::kIdle)) +
                                 CostPolicy::BudgetNs(replay.cost(Waiting::kInFlight));
        ASSERT_LE(replay.total_ns(), 2 * replay.best_ns() + budget_ns) << seed << ' ' << i;
      }
    }
  }
};

// Where nothing hurts it teaches that to sleep at once is best.
TEST_F(CostPolicyAdversary, ThatHurtsMostEachTime) {
  Play([](const WaitPlan& plan, const WaitCost& cost, std::mt19937_64&) {
    const std::vector<int64_t> waits = Temptations(plan, cost);
    return *std::ranges::max_element(
        waits, {}, [&](int64_t wait) { return cost.Of(plan, wait) - 2 * cost.Best(wait); });
  });
}

// First it teaches, then it hurts, in turns of random length.
TEST_F(CostPolicyAdversary, ThatTeachesWhatIsNotSo) {
  for (const double price : {0.1, 1.0, 8.0}) {
    int left = 0;
    int64_t lesson_ns = -1;
    Play(
        [&](const WaitPlan& plan, const WaitCost& cost, std::mt19937_64& random) {
          if (left-- == 0) {
            left = static_cast<int>(random() % 300);
            const bool teaches = random() % 2 == 0;
            lesson_ns = teaches ? static_cast<int64_t>(random() % 2'000'000) >> random() % 12 : -1;
          }
          if (lesson_ns >= 0) return lesson_ns;
          const std::vector<int64_t> waits = Temptations(plan, cost);
          return waits[random() % waits.size()];
        },
        {.price = price});
  }
}

}  // namespace
}  // namespace ringside
