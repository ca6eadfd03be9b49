#include "benchmarks/poll_simulator/simulation.h"

#include <limits>
#include <memory>
#include <utility>

namespace ringside {
namespace {

double Ratio(double cost_ns, double optimum_ns) {
  if (optimum_ns > 0) return cost_ns / optimum_ns;
  return cost_ns > 0 ? std::numeric_limits<double>::infinity() : 1;
}

// By a policy as the product makes it, new for each trace.
Totals ReplayAs(const PollConfig& config, const Trace& trace, const Host& host) {
  const std::unique_ptr<PollPolicy> policy = PollPolicy::Create(config);
  return Replay(trace, policy.get(), {.sleep = host.sleep, .price = config.price});
}

FamilyResult RunFamily(const SimulationSettings& settings, const Host& host, const Family& family) {
  FamilyResult result = {.name = family.name,
                         .policies = std::vector<Totals>(settings.policies.size())};
  for (const Trace& trace : family.traces) {
    TraceResult& of_trace = result.traces.emplace_back(TraceResult{.name = trace.name});
    for (size_t i = 0; i < settings.policies.size(); ++i) {
      PollConfig config = settings.poll;
      config.kind = settings.policies[i];
      of_trace.policies.push_back(ReplayAs(config, trace, host));
      result.policies[i] += of_trace.policies.back();
    }
  }
  if (!settings.sweep) return result;
  PollConfig config = settings.poll;
  config.kind = PollKind::kFixed;
  for (const int64_t max_ns : kSweepNs) {
    config.max_ns = max_ns;
    Totals& sum = result.sweep.emplace_back();
    for (const Trace& trace : family.traces) sum += ReplayAs(config, trace, host);
  }
  return result;
}

HostResult RunHost(const SimulationSettings& settings, const Host& host) {
  const CostModel model = {.sleep = host.sleep, .price = settings.poll.price};
  HostResult result = {.host = host,
                       .relative_sums = std::vector<double>(settings.policies.size())};
  for (const std::string& name : settings.families) {
    result.families.push_back(RunFamily(settings, host, MakeFamily(name, settings.made_up, model)));
  }
  if (settings.recorded) {
    result.families.push_back(RunFamily(settings, host, *settings.recorded));
  }
  for (const FamilyResult& family : result.families) {
    for (size_t i = 0; i < settings.policies.size(); ++i) {
      result.relative_sums[i] += RelativeCost(family.policies[i]);
    }
  }
  return result;
}

}  // namespace

std::vector<HostResult> Simulate(const SimulationSettings& settings) {
  std::vector<HostResult> results;
  results.reserve(settings.hosts.size());
  for (const Host& host : settings.hosts) results.push_back(RunHost(settings, host));
  return results;
}

double RelativeCost(const Totals& totals) {
  return Ratio(totals.cost_ns, totals.optimum_ns);
}

double RelativeToDozing(const Totals& totals) {
  return Ratio(totals.cost_ns, totals.dozing_optimum_ns);
}

}  // namespace ringside
