#include "benchmarks/poll_simulator/replay.h"

#include <algorithm>

namespace ringside {
namespace {

// An I/O thread's waits, one after the other.
class Replayer {
 public:
  Replayer(PollPolicy* policy, const CostModel& model) : model_(model), policy_(policy) {
    if (policy_ != nullptr) policy_->SetSleepCost(model.sleep);
  }

  // The plan comes first: an adversary answers it.
  WaitPlan Plan(Waiting what) {
    return policy_ == nullptr ? WaitPlan{} : policy_->Plan(what, totals_.elapsed_ns);
  }

  void Spend(const WaitPlan& plan, const Wait& wait) {
    const WaitCharge charge = ChargeOf(plan, wait.waited_ns, model_.sleep);
    if (policy_ != nullptr) Tell(wait, charge);
    ++totals_.waits;
    totals_.elapsed_ns += wait.waited_ns + charge.latency_ns + wait.busy_ns;
    totals_.cpu_ns += charge.cpu_ns;
    totals_.latency_ns += charge.latency_ns;
    totals_.wake_ups += charge.event_woke ? 1 : 0;
    totals_.timer_wake_ups += charge.timer_woke ? 1 : 0;
    totals_.cost_ns += CostOf(charge, model_.price);
    totals_.optimum_ns += OptimumOf(wait.waited_ns, model_);
    totals_.dozing_optimum_ns += DozingOptimumOf(wait.waited_ns, model_);
    totals_.most_above_twice_ns =
        std::max(totals_.most_above_twice_ns, totals_.cost_ns - 2 * totals_.optimum_ns);
  }

  const Totals& totals() const { return totals_; }

 private:
  void Tell(const Wait& wait, const WaitCharge& charge) {
    if (charge.timer_woke) policy_->SetSleepCost(model_.sleep);  // measured anew, and the same
    policy_->Observe({.what = wait.what,
                      .start_ns = totals_.elapsed_ns,
                      .waited_ns = wait.waited_ns,
                      .spun_ns = charge.spun_ns,
                      .ready = wait.ready});
  }

  const CostModel model_;
  PollPolicy* const policy_;
  Totals totals_;
};

}  // namespace

Totals& operator+=(Totals& sum, const Totals& more) {
  sum.waits += more.waits;
  sum.elapsed_ns += more.elapsed_ns;
  sum.cpu_ns += more.cpu_ns;
  sum.latency_ns += more.latency_ns;
  sum.wake_ups += more.wake_ups;
  sum.timer_wake_ups += more.timer_wake_ups;
  sum.cost_ns += more.cost_ns;
  sum.optimum_ns += more.optimum_ns;
  sum.dozing_optimum_ns += more.dozing_optimum_ns;
  sum.most_above_twice_ns = std::max(sum.most_above_twice_ns, more.most_above_twice_ns);
  return sum;
}

Totals Replay(const Trace& trace, PollPolicy* policy, const CostModel& model) {
  Replayer replayer(policy, model);
  Adversary adversary = trace.adversary;
  for (Wait wait : trace.waits) {
    const WaitPlan plan = replayer.Plan(wait.what);
    if (adversary) wait.waited_ns = adversary(plan);
    replayer.Spend(plan, wait);
  }
  return replayer.totals();
}

}  // namespace ringside
