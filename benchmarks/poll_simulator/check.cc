#include "benchmarks/poll_simulator/check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "poll/cost_policy.h"

namespace ringside {
namespace {

constexpr double kMostOfTheBetter = 1.05;

// Places in the settings' policies.
enum Place : size_t { kGrowShrink, kWeighted, kCost };

class Checker {
 public:
  Verdict Check(const std::vector<HostResult>& hosts) {
    for (const HostResult& host : hosts) {
      host_ = &host.host;
      verdict_.table += absl::StrFormat("%-12s %-24s %11s %8s %8s %9s\n", host_->name, "x best",
                                        "grow-shrink", "weighted", "cost", "to better");
      for (const FamilyResult& family : host.families) CheckFamily(family);
      CheckSum(host.relative_sums);
    }
    return std::move(verdict_);
  }

 private:
  template <typename... Args>
  void Offend(const absl::FormatSpec<Args...>& format, const Args&... args) {
    verdict_.offences.push_back(
        absl::StrFormat("host %s, %s", host_->name, absl::StrFormat(format, args...)));
  }

  void AddLine(const std::string& name, double grow_shrink, double weighted, double cost) {
    verdict_.table +=
        absl::StrFormat("%-12s %-24s %11.3f %8.3f %8.3f %9.3f\n", "", name, grow_shrink, weighted,
                        cost, cost / std::min(grow_shrink, weighted));
  }

  void CheckFamily(const FamilyResult& family) {
    const double grow_shrink = RelativeCost(family.policies[kGrowShrink]);
    const double weighted = RelativeCost(family.policies[kWeighted]);
    const double cost = RelativeCost(family.policies[kCost]);
    AddLine(family.name, grow_shrink, weighted, cost);
    const double better = std::min(grow_shrink, weighted);
    if (cost > kMostOfTheBetter * better) {
      Offend(
          "family %s: cost is %.3f x the optimum, %.3f times the better of its rivals; %g at "
          "most",
          family.name, cost, cost / better, kMostOfTheBetter);
    }
    if (!absl::StartsWith(family.name, "adversary-")) return;
    for (const TraceResult& trace : family.traces) CheckBound(family.name, trace);
  }

  void CheckBound(const std::string& family, const TraceResult& trace) {
    const double above_ns = trace.policies[kCost].most_above_twice_ns;
    const double budget_ns =
        CostPolicy::BudgetNs(WaitCost(host_->sleep, Waiting::kIdle, /*price=*/1));
    if (above_ns <= budget_ns) return;
    Offend("family %s, trace '%s': cost was %.0f us above twice the optimum; %.0f us at most",
           family, trace.name, above_ns / 1e3, budget_ns / 1e3);
  }

  void CheckSum(const std::vector<double>& sums) {
    AddLine("sum over families", sums[kGrowShrink], sums[kWeighted], sums[kCost]);
    for (const auto& [rival, name] :
         {std::pair{kGrowShrink, "grow-shrink"}, {kWeighted, "weighted"}}) {
      if (sums[kCost] < sums[rival]) continue;
      Offend("sum over families: cost has %.3f, %s %.3f; it must be below", sums[kCost], name,
             sums[rival]);
    }
  }

  Verdict verdict_;
  const Host* host_ = nullptr;
};

}  // namespace

SimulationSettings CheckSettings(const FamilyOptions& made_up) {
  return {.policies = {PollKind::kGrowShrink, PollKind::kWeighted, PollKind::kCost},
          .made_up = made_up};
}

Verdict CheckPromises(const std::vector<HostResult>& hosts) {
  return Checker().Check(hosts);
}

}  // namespace ringside
