#include "poll/policy.h"

#include <algorithm>
#include <array>
#include <bit>

#include "poll/cost_policy.h"

namespace ringside {
namespace {

constexpr int64_t kFirstNs = 4000;  // what a limit grows to from nothing

// Looks for a limit, and counts what it planned.
class LimitPolicy : public PollPolicy {
 public:
  WaitPlan Plan(Waiting what, int64_t) final {
    ++waits_[static_cast<size_t>(what)];
    return {.spin_ns = limits_ns_[static_cast<size_t>(what)]};
  }

  PollExplanation Explain() const final {
    PollExplanation explanation;
    for (const Waiting what : {Waiting::kIdle, Waiting::kInFlight}) {
      const auto index = static_cast<size_t>(what);
      explanation.of(what).plan = {.spin_ns = limits_ns_[index]};
      explanation.of(what).waits[static_cast<size_t>(WaitReason::kPolicy)] = waits_[index];
    }
    return explanation;
  }

 protected:
  int64_t limit_ns(Waiting what) const { return limits_ns_[static_cast<size_t>(what)]; }
  void SetLimit(Waiting what, int64_t limit_ns) {
    limits_ns_[static_cast<size_t>(what)] = limit_ns;
  }
  void SetLimits(int64_t limit_ns) { limits_ns_.fill(limit_ns); }

 private:
  std::array<int64_t, kWaitings> limits_ns_ = {};
  std::array<uint64_t, kWaitings> waits_ = {};
};

class ConstantPolicy final : public LimitPolicy {
 public:
  explicit ConstantPolicy(int64_t spin_ns) { SetLimits(spin_ns); }
  void Observe(const WaitOutcome&) override {}
};

// The rule that QEMU's AioContext and kvm.ko's halt polling share. A wait within the limit was
// caught, so the limit is right. One beyond all limits makes polling a waste. One between would
// have been caught by a longer limit.
class GrowShrinkPolicy final : public LimitPolicy {
 public:
  explicit GrowShrinkPolicy(const PollConfig& config) : config_(config) {}

  void Observe(const WaitOutcome& outcome) override {
    const int64_t old_ns = limit_ns(outcome.what);
    if (outcome.waited_ns <= old_ns) return;
    if (outcome.waited_ns > config_.max_ns) {
      SetLimit(outcome.what, config_.shrink == 0 ? 0 : old_ns / config_.shrink);
    } else {
      const int64_t grown_ns = old_ns == 0 ? kFirstNs : old_ns * config_.grow;
      SetLimit(outcome.what, std::min(grown_ns, config_.max_ns));
    }
  }

 private:
  const PollConfig config_;
};

// What QEMU 11.1 does: a smoothed interval for each source, which grows while it is silent and is
// forgotten beyond the longest limit; and one limit, which follows the longest interval of those
// that had work, upwards at once where they are far apart, downwards step by step.
class WeightedPolicy final : public LimitPolicy {
 public:
  explicit WeightedPolicy(const PollConfig& config) : config_(config) {}

  void Observe(const WaitOutcome& outcome) override {
    if (outcome.ready == 0) return;  // a task or a descriptor: no ring is the faster for it
    known_ |= outcome.ready;
    int64_t target_ns = 0;
    for (uint64_t left = known_; left != 0; left &= left - 1) {
      const int index = std::countr_zero(left);
      int64_t& interval_ns = intervals_ns_[static_cast<size_t>(index)];
      const bool was_ready = (outcome.ready >> index & 1) != 0;
      Smooth(interval_ns, outcome.waited_ns, was_ready);
      if (was_ready) target_ns = std::max(target_ns, interval_ns);
    }
    SetLimits(Follow(limit_ns(outcome.what), target_ns));
  }

 private:
  void Smooth(int64_t& interval_ns, int64_t waited_ns, bool was_ready) const {
    if (!was_ready) {
      if (interval_ns != 0) interval_ns += waited_ns;
    } else if (interval_ns == 0) {
      interval_ns = waited_ns;
    } else {
      interval_ns += (waited_ns >> config_.weight) - (interval_ns >> config_.weight);
    }
    if (interval_ns >= config_.max_ns) interval_ns = 0;
  }

  // The limit that comes after this one.
  int64_t Follow(int64_t limit_ns, int64_t target_ns) const {
    if (target_ns > limit_ns) {
      const int64_t grown_ns = limit_ns == 0 ? kFirstNs : limit_ns * config_.grow;
      return std::min(std::max(target_ns, grown_ns), config_.max_ns);
    }
    if (config_.shrink == 0) return target_ns == 0 ? 0 : limit_ns;
    return target_ns < limit_ns / config_.shrink ? limit_ns / config_.shrink : limit_ns;
  }

  const PollConfig config_;
  uint64_t known_ = 0;  // sources that ever had work
  std::array<int64_t, 64> intervals_ns_ = {};
};

}  // namespace

PollExplanation PollPolicy::Explain() const {
  return {};
}

const char* WaitingName(Waiting what) {
  return what == Waiting::kIdle ? "idle" : "in flight";
}

const char* WaitReasonName(WaitReason reason) {
  constexpr std::array<const char*, kWaitReasons> kNames = {"policy", "guard", "preempted",
                                                            "ceiling", "learning"};
  return kNames[static_cast<size_t>(reason)];
}

const char* PollKindName(PollKind kind) {
  constexpr std::array kNames = {"never", "always", "fixed", "grow-shrink", "weighted", "cost"};
  return kNames[static_cast<size_t>(kind)];
}

std::unique_ptr<PollPolicy> PollPolicy::Create(const PollConfig& config) {
  switch (config.kind) {
    case PollKind::kNever:
      return nullptr;
    case PollKind::kAlways:
      return std::make_unique<ConstantPolicy>(kForever);
    case PollKind::kFixed:
      return std::make_unique<ConstantPolicy>(config.max_ns);
    case PollKind::kGrowShrink:
      return std::make_unique<GrowShrinkPolicy>(config);
    case PollKind::kWeighted:
      return std::make_unique<WeightedPolicy>(config);
    case PollKind::kCost:
      return std::make_unique<CostPolicy>(config);
  }
  return nullptr;
}

}  // namespace ringside
