#include "faults/fault_plan.h"

#include <algorithm>

namespace ringside {
namespace {

bool Touches(const FaultRule& rule, const BlockRequest& request) {
  if (!rule.has_range()) return true;
  if (request.op == BlockOp::kFlush) return false;  // it has no place
  const bool transfers = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
  const uint64_t length = transfers ? TotalLength(request.segments) : request.length;
  return request.offset < rule.end_byte && rule.first_byte < request.offset + length;
}

// From 0 to 1, without 1.
double Fraction(uint64_t random) {
  return static_cast<double>(random >> 11) * 0x1p-53;
}

}  // namespace

FaultPlan::FaultPlan(FaultScript script, int64_t now_ns)
    : script_(std::move(script)),
      start_ns_(now_ns),
      random_(script_.seed),
      progress_(script_.rules.size()) {}

bool FaultPlan::has_cut() const {
  return std::ranges::any_of(
      script_.rules, [](const FaultRule& rule) { return rule.action == FaultAction::kCut; });
}

bool FaultPlan::Applies(const FaultRule& rule, Progress& progress) {
  if (++progress.matched <= rule.after || progress.applied == rule.count) return false;
  if (rule.probability < 1 && Fraction(NextRandom(random_)) >= rule.probability) return false;
  ++progress.applied;
  return true;
}

FaultDecision FaultPlan::Decide(const BlockRequest& request, int64_t now_ns) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < script_.rules.size(); ++i) {
    const FaultRule& rule = script_.rules[i];
    if (!rule.IsAbout(request.op) || now_ns - start_ns_ < rule.after_ns ||
        !Touches(rule, request)) {
      continue;
    }
    if (Applies(rule, progress_[i])) return {.rule = &rule, .random = NextRandom(random_)};
  }
  return {};
}

}  // namespace ringside
