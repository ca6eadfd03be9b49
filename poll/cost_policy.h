// Looks, dozes or sleeps as costs least: placeholder that looks for as long as a sleep costs.
#pragma once

#include "poll/policy.h"

namespace ringside {

class CostPolicy final : public PollPolicy {
 public:
  explicit CostPolicy(const PollConfig& config) : config_(config) {}

  WaitPlan Plan(Waiting, int64_t) override {
    const double sleep = static_cast<double>(cost_.wake_ns) / config_.price;
    return {.spin_ns = static_cast<int64_t>(sleep) + cost_.cpu_ns};
  }
  void Observe(const WaitOutcome&) override {}
  void SetSleepCost(const SleepCost& cost) override { cost_ = cost; }

 private:
  const PollConfig config_;
  SleepCost cost_;
};

}  // namespace ringside
