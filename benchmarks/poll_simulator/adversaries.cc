#include "benchmarks/poll_simulator/adversaries.h"

#include <algorithm>
#include <cstdlib>

namespace ringside {
namespace {

constexpr int64_t kLeastNs = 1'000;
constexpr int64_t kEndlessNs = 1'000'000;

// How far the plan reaches before the thread sleeps for good.
int64_t ReachNs(const WaitPlan& plan, int64_t wake_ns) {
  return plan.doze_ns > 0 ? plan.doze_ns + wake_ns + plan.spin_ns : plan.spin_ns;
}

bool Differ(int64_t a_ns, int64_t b_ns) {
  return std::abs(a_ns - b_ns) > std::max(a_ns, b_ns) / 4;
}

class TrainDriver {
 public:
  TrainDriver(const Trains& trains, const Random& random)
      : trains_(trains), random_(random), least_(RandomLength()) {}

  int64_t operator()(const WaitPlan& plan) {
    if (waits_ >= least_ && (Changed(plan) || waits_ >= 4 * trains_.longest_train)) Turn();
    if (waits_ == 0) first_ = plan;
    ++waits_;
    return short_ ? trains_.short_ns : trains_.long_ns;
  }

 private:
  bool Changed(const WaitPlan& plan) const {
    return Differ(plan.spin_ns, first_.spin_ns) || Differ(plan.doze_ns, first_.doze_ns);
  }

  void Turn() {
    short_ = !short_;
    waits_ = 0;
    least_ = RandomLength();
  }

  int RandomLength() {
    return std::uniform_int_distribution<int>(1, trains_.longest_train)(random_);
  }

  const Trains trains_;
  Random random_;
  bool short_ = true;
  WaitPlan first_;  // for the train's first wait
  int waits_ = 0;
  int least_;
};

}  // namespace

Adversary JustBeyondTheLimit(int64_t late_ns, int64_t wake_ns) {
  return [=](const WaitPlan& plan) {
    if (plan.doze_ns >= kEndlessNs || plan.spin_ns >= kEndlessNs) return kEndlessNs;
    return std::max(kLeastNs, ReachNs(plan, wake_ns) + late_ns);
  };
}

Adversary JustInsideTheDoze(int64_t early_ns, int64_t bait_ns) {
  return [=](const WaitPlan& plan) {
    if (plan.doze_ns <= 0) return bait_ns;
    return std::max(kLeastNs, std::min(plan.doze_ns, kEndlessNs) - early_ns);
  };
}

Adversary TrainsAgainstTheLearner(const Trains& trains, const Random& random) {
  return TrainDriver(trains, random);
}

Adversary AroundTheSleepCost(int64_t break_even_ns, double deviation, const Random& random) {
  return [=, random = random, is_short = std::bernoulli_distribution()](const WaitPlan&) mutable {
    const double share = is_short(random) ? 1 - deviation : 1 + deviation;
    return std::max(kLeastNs, static_cast<int64_t>(share * static_cast<double>(break_even_ns)));
  };
}

}  // namespace ringside
