// Looks, dozes or sleeps as costs least: latency lost plus price times CPU time burnt.
//
// For each kind of wait five plans compete: the plain limit, which polls for as long as costs what
// a sleep costs; polling that long only if the last wait was so short; the limit that would have
// cost least on the waits there were; a doze until shortly before something has come lately,
// counted from the wait's beginning; and the same counted from the last thing that came. Every wait
// charges each of them with what it would have cost, whichever was in use, and the one that has
// cost least lately is used. Whatever waits come, their total cost stays within twice the best
// possible plus BudgetNs: docs/polling.md has the argument.
#pragma once

#include <array>
#include <cstdint>

#include "poll/policy.h"
#include "poll/recent_waits.h"
#include "poll/wait_cost.h"
#include "poll/wait_histogram.h"

namespace ringside {

class CostPolicy final : public PollPolicy {
 public:
  // By how much the waits of one kind may cost more than twice the best possible, in ns of latency.
  static double BudgetNs(const WaitCost& cost) { return kBudgetSleeps * cost.sleeping(); }

  explicit CostPolicy(const PollConfig& config) : config_(config) {}

  WaitPlan Plan(Waiting what, int64_t now_ns) override;
  void Observe(const WaitOutcome& outcome) override;
  void SetSleepCost(const SleepCost& cost) override;
  PollExplanation Explain() const override;

 private:
  static constexpr double kBudgetSleeps = 64;
  enum Competitor { kPlain, kAgain, kLimit, kDoze, kBeat, kCompetitors };

  // Of one kind of wait.
  struct Learner {
    WaitCost cost;
    WaitHistogram histogram;
    RecentWaits recent;
    RecentWaits gaps;     // between the ends of waits of this kind
    int64_t last_ns = 0;  // such an end
    WaitPlan beat;        // from there
    std::array<WaitPlan, kCompetitors> plans;
    std::array<double, kCompetitors> costs_ns = {};  // lately
    Competitor best = kPlain;
    double over_ns = 0;     // what waits have cost beyond twice the best possible
    double to_plan_ns = 0;  // what they may cost until plans are made anew
    std::array<uint64_t, kWaitReasons> waits = {};  // by WaitReason

    bool InBudget() const { return over_ns <= BudgetNs(cost) / 2; }
    void PlanBeat(int64_t now_ns);
    void Account(const WaitPlan& plan, int64_t waited_ns);
    void Charge(int64_t waited_ns);
    void MakePlans();
    WaitReason Reason() const;
    const WaitPlan& Chosen() const { return plans[InBudget() ? best : kPlain]; }
    WaitExplanation Explain() const;
  };

  Learner& Of(Waiting what) { return learners_[static_cast<size_t>(what)]; }
  WaitReason MakePlan(Learner& learner, int64_t now_ns);
  void LeaveCpu(int64_t now_ns);
  // Whether any of it is left.
  bool RefillAllowance(int64_t now_ns);
  int64_t Allowed(int64_t spin_ns) const;

  const PollConfig config_;
  std::array<Learner, kWaitings> learners_;
  WaitPlan plan_;               // the last one
  bool is_chosen_ = false;      // by what it costs, and by nothing else
  int64_t sleep_until_ns_ = 0;  // since another thread needed the CPU
  int64_t hold_from_ns_ = 0;    // since it needed it for long
  int64_t leave_ns_ = 0;        // for how long, the last time
  double allowance_ns_ = 0;     // of CPU time for polling
  int64_t allowed_at_ns_ = 0;
};

}  // namespace ringside
