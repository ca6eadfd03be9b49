#include "benchmarks/poll_simulator/cost_model.h"

#include <algorithm>

namespace ringside {
namespace {

double SleepingCost(const CostModel& model) {
  return static_cast<double>(model.sleep.wake_ns) +
         model.price * static_cast<double>(model.sleep.cpu_ns);
}

WaitCharge SleepUntilTheEvent(const SleepCost& sleep) {
  return {.cpu_ns = sleep.cpu_ns, .latency_ns = sleep.wake_ns, .event_woke = true};
}

WaitCharge LookThenSleep(int64_t spin_ns, int64_t waited_ns, const SleepCost& sleep) {
  if (waited_ns <= spin_ns) return {.cpu_ns = waited_ns, .spun_ns = waited_ns};
  WaitCharge charge = SleepUntilTheEvent(sleep);
  charge.cpu_ns += spin_ns;
  charge.spun_ns = spin_ns;
  return charge;
}

}  // namespace

WaitCharge ChargeOf(const WaitPlan& plan, int64_t waited_ns, const SleepCost& sleep) {
  if (plan.doze_ns <= 0) return LookThenSleep(plan.spin_ns, waited_ns, sleep);
  if (waited_ns <= plan.doze_ns) return SleepUntilTheEvent(sleep);
  const int64_t awake_ns = plan.doze_ns + sleep.wake_ns;
  WaitCharge charge;
  if (waited_ns <= awake_ns) {
    charge.latency_ns = awake_ns - waited_ns;
  } else {
    charge = LookThenSleep(plan.spin_ns, waited_ns - awake_ns, sleep);
  }
  charge.cpu_ns += sleep.cpu_ns;
  charge.timer_woke = true;
  return charge;
}

double CostOf(const WaitCharge& charge, double price) {
  return static_cast<double>(charge.latency_ns) + price * static_cast<double>(charge.cpu_ns);
}

double OptimumOf(int64_t waited_ns, const CostModel& model) {
  return std::min(model.price * static_cast<double>(waited_ns), SleepingCost(model));
}

double DozingOptimumOf(int64_t waited_ns, const CostModel& model) {
  const double awake_or_asleep = OptimumOf(waited_ns, model);
  if (waited_ns <= model.sleep.wake_ns) return awake_or_asleep;
  return std::min(awake_or_asleep, model.price * static_cast<double>(model.sleep.cpu_ns));
}

int64_t BreakEvenNs(const CostModel& model) {
  return static_cast<int64_t>(SleepingCost(model) / model.price);
}

}  // namespace ringside
