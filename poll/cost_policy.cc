#include "poll/cost_policy.h"

#include <algorithm>
#include <utility>

namespace ringside {
namespace {

constexpr double kHistogramWaits = 256;      // that it remembers
constexpr double kCostsFade = 31 / 32.0;     // each wait
constexpr double kBetter = 0.95;             // who takes over must cost so much less
constexpr double kSleepsAPlan = 16;          // making plans costs a tenth of a sleep
constexpr int64_t kLeaveCpuNs = 10'000'000;  // after another thread needed it, at first
constexpr int64_t kLongestLeaveNs = 160'000'000;
constexpr double kMostAllowanceNs = 10e6;  // saved up by not polling

// No plan polls for longer than so many plain limits, so that none can spend the budget at once.
constexpr int64_t kMostPlainLimits = 16;

}  // namespace

WaitPlan CostPolicy::Plan(Waiting what, int64_t now_ns) {
  Learner& learner = Of(what);
  const WaitReason reason = MakePlan(learner, now_ns);
  ++learner.waits[static_cast<size_t>(reason)];
  is_chosen_ = reason != WaitReason::kPreempted && reason != WaitReason::kCeiling;
  return plan_;
}

WaitReason CostPolicy::MakePlan(Learner& learner, int64_t now_ns) {
  learner.PlanBeat(now_ns);
  const bool may_poll = RefillAllowance(now_ns);
  plan_ = {.may_hold = may_poll && now_ns >= hold_from_ns_};
  if (now_ns < sleep_until_ns_) return WaitReason::kPreempted;
  plan_ = learner.Chosen();
  const int64_t allowed_ns = Allowed(plan_.spin_ns);
  plan_.offers_cpu = true;
  plan_.may_hold = may_poll;  // for what is held it polls however short its plan
  if (allowed_ns == plan_.spin_ns) return learner.Reason();
  plan_ = {.spin_ns = allowed_ns, .offers_cpu = true};
  return WaitReason::kCeiling;
}

bool CostPolicy::RefillAllowance(int64_t now_ns) {
  if (config_.cpu_max >= 1) return true;
  allowance_ns_ += config_.cpu_max * static_cast<double>(now_ns - allowed_at_ns_);
  allowance_ns_ = std::min(allowance_ns_, config_.cpu_max * kMostAllowanceNs);
  allowed_at_ns_ = now_ns;
  return allowance_ns_ > 0;
}

int64_t CostPolicy::Allowed(int64_t spin_ns) const {
  if (config_.cpu_max >= 1) return spin_ns;
  return std::clamp<int64_t>(static_cast<int64_t>(allowance_ns_), 0, spin_ns);
}

void CostPolicy::Observe(const WaitOutcome& outcome) {
  const int64_t waited_ns = outcome.waited_ns;
  allowance_ns_ -= static_cast<double>(outcome.spun_ns);
  if (outcome.preempted) LeaveCpu(outcome.start_ns + waited_ns);
  if (outcome.preempted_for_long) hold_from_ns_ = sleep_until_ns_;
  Learner& learner = Of(outcome.what);
  if (is_chosen_) learner.Account(plan_, waited_ns);
  learner.Charge(waited_ns);
  learner.histogram.Add(waited_ns);
  learner.recent.Add(waited_ns);
  const int64_t end_ns = outcome.start_ns + waited_ns;
  learner.gaps.Add(end_ns - std::exchange(learner.last_ns, end_ns));
  learner.to_plan_ns -= learner.cost.Best(waited_ns);
  if (learner.to_plan_ns <= 0) learner.MakePlans();
}

// For twice as long if it was needed again soon: finding out takes some polling each time.
void CostPolicy::LeaveCpu(int64_t now_ns) {
  const bool is_again = now_ns - sleep_until_ns_ < leave_ns_;
  leave_ns_ = is_again ? std::min(2 * leave_ns_, kLongestLeaveNs) : kLeaveCpuNs;
  sleep_until_ns_ = now_ns + leave_ns_;
}

void CostPolicy::SetSleepCost(const SleepCost& sleep) {
  for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
    Learner& learner = Of(what);
    learner.cost = WaitCost(sleep, what, config_.price);
    learner.plans[kPlain] = {.spin_ns = learner.cost.plain_limit_ns()};
  }
}

// What comes at a steady rate does so whenever the last of it was served.
void CostPolicy::Learner::PlanBeat(int64_t now_ns) {
  const int64_t doze_ns = beat.doze_ns - (now_ns - last_ns);
  plans[kBeat] = doze_ns > cost.timer_late_ns()
                     ? WaitPlan{.doze_ns = doze_ns, .spin_ns = beat.spin_ns}
                     : plans[kLimit];
}

void CostPolicy::Learner::Account(const WaitPlan& plan, int64_t waited_ns) {
  over_ns += cost.Of(plan, waited_ns) - 2 * cost.Best(waited_ns);
  over_ns = std::max(over_ns, -BudgetNs(cost));  // good times are no excuse for ever
}

void CostPolicy::Learner::Charge(int64_t waited_ns) {
  const bool all_same = std::ranges::all_of(
      plans, [&](const WaitPlan& plan) { return plan.doze_ns == 0 && waited_ns <= plan.spin_ns; });
  if (!all_same) {
    for (size_t i = 0; i < kCompetitors; ++i) {
      costs_ns[i] = kCostsFade * costs_ns[i] + cost.Of(plans[i], waited_ns);
    }
    for (const Competitor other : {kPlain, kAgain, kLimit, kDoze, kBeat}) {
      if (costs_ns[other] < kBetter * costs_ns[best]) best = other;
    }
  }
  plans[kAgain] = waited_ns <= plans[kPlain].spin_ns ? plans[kPlain] : WaitPlan{};
}

void CostPolicy::Learner::MakePlans() {
  to_plan_ns = kSleepsAPlan * cost.sleeping();
  const int64_t most_ns = kMostPlainLimits * cost.plain_limit_ns();
  plans[kLimit] = {.spin_ns = std::min(histogram.BestLimitNs(cost), most_ns)};
  histogram.FadeTo(kHistogramWaits);
  beat = {};
  plans[kDoze] = plans[kLimit];
  if (!recent.full()) return;
  beat = gaps.BestDoze(cost);
  beat.spin_ns = std::min(beat.spin_ns, most_ns);
  WaitPlan doze = recent.BestDoze(cost);
  doze.spin_ns = std::min(doze.spin_ns, most_ns);
  if (doze.doze_ns != 0) plans[kDoze] = doze;
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
  constexpr std::array<const char*, kCompetitors> kNames = {"plain", "again", "limit", "doze",
                                                            "beat"};
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
