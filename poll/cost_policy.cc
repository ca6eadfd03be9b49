#include "poll/cost_policy.h"

#include <algorithm>

namespace ringside {
namespace {

constexpr double kHistogramWaits = 256;      // that it remembers
constexpr double kCostsFade = 31 / 32.0;     // each wait
constexpr double kBetter = 0.95;             // who takes over must cost so much less
constexpr double kSleepsAPlan = 16;          // making plans costs a tenth of a sleep
constexpr int64_t kLeaveCpuNs = 10'000'000;  // after another thread needed it
constexpr double kMostAllowanceNs = 10e6;    // saved up by not looking

// No plan looks for longer than so many plain limits, so that none can spend the budget at once.
constexpr int64_t kMostPlainLimits = 16;

}  // namespace

WaitPlan CostPolicy::Plan(Waiting what, int64_t now_ns) {
  Learner& learner = Of(what);
  const WaitReason reason = MakePlan(learner, now_ns);
  ++learner.waits[static_cast<size_t>(reason)];
  is_chosen_ = reason != WaitReason::kPreempted && reason != WaitReason::kCeiling;
  return plan_;
}

WaitReason CostPolicy::MakePlan(const Learner& learner, int64_t now_ns) {
  plan_ = {};
  if (now_ns < sleep_until_ns_) return WaitReason::kPreempted;
  plan_ = learner.Chosen();
  const int64_t allowed_ns = Allowed(plan_.spin_ns, now_ns);
  plan_.offers_cpu = true;
  if (allowed_ns == plan_.spin_ns) return learner.Reason();
  plan_ = {.spin_ns = allowed_ns, .offers_cpu = true};
  return WaitReason::kCeiling;
}

int64_t CostPolicy::Allowed(int64_t spin_ns, int64_t now_ns) {
  if (config_.cpu_max >= 1) return spin_ns;
  allowance_ns_ += config_.cpu_max * static_cast<double>(now_ns - allowed_at_ns_);
  allowance_ns_ = std::min(allowance_ns_, config_.cpu_max * kMostAllowanceNs);
  allowed_at_ns_ = now_ns;
  return std::clamp<int64_t>(static_cast<int64_t>(allowance_ns_), 0, spin_ns);
}

void CostPolicy::Observe(const WaitOutcome& outcome) {
  const int64_t waited_ns = outcome.waited_ns;
  allowance_ns_ -= static_cast<double>(outcome.spun_ns);
  if (outcome.preempted) sleep_until_ns_ = outcome.start_ns + waited_ns + kLeaveCpuNs;
  Learner& learner = Of(outcome.what);
  if (is_chosen_) learner.Account(plan_, waited_ns);
  learner.Charge(waited_ns);
  learner.histogram.Add(waited_ns);
  learner.recent.Add(waited_ns);
  learner.to_plan_ns -= learner.cost.Best(waited_ns);
  if (learner.to_plan_ns <= 0) learner.MakePlans();
}

void CostPolicy::SetSleepCost(const SleepCost& sleep) {
  for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
    Learner& learner = Of(what);
    learner.cost = WaitCost(sleep, what, config_.price);
    learner.plans[kPlain] = {.spin_ns = learner.cost.plain_limit_ns()};
  }
}

void CostPolicy::Learner::Account(const WaitPlan& plan, int64_t waited_ns) {
  over_ns += cost.Of(plan, waited_ns) - 2 * cost.Best(waited_ns);
  over_ns = std::max(over_ns, -BudgetNs(cost));  // good times are no excuse for ever
}

void CostPolicy::Learner::Charge(int64_t waited_ns) {
  const bool is_short = waited_ns <= plans[kPlain].spin_ns;
  const bool all_same = is_short && waited_ns <= plans[kLimit].spin_ns &&
                        plans[kDoze].doze_ns == 0 && waited_ns <= plans[kAgain].spin_ns;
  if (!all_same) {
    for (size_t i = 0; i < kCompetitors; ++i) {
      costs_ns[i] = kCostsFade * costs_ns[i] + cost.Of(plans[i], waited_ns);
    }
    for (const Competitor other : {kPlain, kAgain, kLimit, kDoze}) {
      if (costs_ns[other] < kBetter * costs_ns[best]) best = other;
    }
  }
  plans[kAgain] = is_short ? plans[kPlain] : WaitPlan{};
}

void CostPolicy::Learner::MakePlans() {
  to_plan_ns = kSleepsAPlan * cost.sleeping();
  const int64_t most_ns = kMostPlainLimits * cost.plain_limit_ns();
  plans[kLimit] = {.spin_ns = std::min(histogram.BestLimitNs(cost), most_ns)};
  plans[kDoze] = recent.full() ? recent.BestDoze(cost) : WaitPlan{};
  if (plans[kDoze].doze_ns == 0) plans[kDoze] = plans[kLimit];
  plans[kDoze].spin_ns = std::min(plans[kDoze].spin_ns, most_ns);
  histogram.FadeTo(kHistogramWaits);
}

WaitReason CostPolicy::Learner::Reason() const {
  if (!InBudget()) return WaitReason::kGuard;
  return recent.full() ? WaitReason::kPolicy : WaitReason::kLearning;
}

PollExplanation CostPolicy::Explain() const {
  PollExplanation explanation;
  for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
    explanation.of(what) = learners_[static_cast<size_t>(what)].Explain();
  }
  return explanation;
}

WaitExplanation CostPolicy::Learner::Explain() const {
  constexpr std::array<const char*, kCompetitors> kNames = {"plain", "again", "limit", "doze"};
  WaitExplanation explanation = {.plan = Chosen(),
                                 .waits = waits,
                                 .regret_ns = static_cast<int64_t>(over_ns),
                                 .regret_budget_ns = static_cast<int64_t>(BudgetNs(cost) / 2)};
  for (size_t i = 0; i < kCompetitors; ++i) {
    explanation.candidates.push_back({kNames[i], plans[i], costs_ns[i]});
  }
  for (size_t bucket = 0; bucket < WaitHistogram::kBuckets; ++bucket) {
    const auto weight = static_cast<double>(histogram.weight(bucket));
    if (weight == 0) continue;
    const bool is_last = bucket + 1 == WaitHistogram::kBuckets;
    explanation.histogram.push_back({WaitHistogram::BeginNs(bucket),
                                     is_last ? kForever : WaitHistogram::BeginNs(bucket + 1),
                                     weight});
  }
  return explanation;
}

}  // namespace ringside
