#include "benchmarks/poll_simulator/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_format.h"

namespace ringside {
namespace {

using Json = nlohmann::ordered_json;

// A wait's share of a sum.
template <typename Number>
double Each(Number sum, const Totals& totals) {
  return totals.waits == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(totals.waits);
}

double CpuShare(const Totals& totals) {
  if (totals.elapsed_ns == 0) return 0;
  return static_cast<double>(totals.cpu_ns) / static_cast<double>(totals.elapsed_ns);
}

// ---- For a person ----

constexpr int kNameWidth = 24;

std::string HeaderLine(std::string_view family) {
  return absl::StrFormat("%-*s %8s %6s %8s %8s %10s %9s %9s %7s %8s\n", kNameWidth,
                         std::string(family), "CPU us", "CPU %", "wake-ups", "timers", "latency us",
                         "cost us", "best us", "x best", "x dozing");
}

std::string PolicyLine(std::string_view policy, const Totals& totals) {
  return absl::StrFormat("  %-*s %8.2f %6.1f %8.3f %8.3f %10.2f %9.2f %9.2f %7.3f %8.3f\n",
                         kNameWidth - 2, std::string(policy), Each(totals.cpu_ns, totals) / 1e3,
                         100 * CpuShare(totals), Each(totals.wake_ups, totals),
                         Each(totals.timer_wake_ups, totals), Each(totals.latency_ns, totals) / 1e3,
                         Each(totals.cost_ns, totals) / 1e3, Each(totals.optimum_ns, totals) / 1e3,
                         RelativeCost(totals), RelativeToDozing(totals));
}

std::string SweepLines(const FamilyResult& family) {
  std::string lines;
  for (size_t i = 0; i < family.sweep.size(); ++i) {
    lines += PolicyLine(absl::StrFormat("fixed %dus", kSweepNs[i] / 1000), family.sweep[i]);
  }
  return lines;
}

std::string HostTable(const SimulationSettings& settings, const HostResult& result) {
  std::string table = absl::StrFormat(
      "Host %s: waking takes %g us, a sleep burns %g us of CPU; price %g. Figures are per "
      "wait.\n\n",
      result.host.name, static_cast<double>(result.host.sleep.wake_ns) / 1e3,
      static_cast<double>(result.host.sleep.cpu_ns) / 1e3, settings.poll.price);
  for (const FamilyResult& family : result.families) {
    table += HeaderLine(family.name);
    for (size_t i = 0; i < settings.policies.size(); ++i) {
      table += PolicyLine(PollKindName(settings.policies[i]), family.policies[i]);
    }
    table += SweepLines(family) + '\n';
  }
  table += absl::StrFormat("%-*s %7s\n", kNameWidth, "sum over families", "x best");
  for (size_t i = 0; i < settings.policies.size(); ++i) {
    table += absl::StrFormat("  %-*s %7.3f\n", kNameWidth - 2, PollKindName(settings.policies[i]),
                             result.relative_sums[i]);
  }
  return table;
}

// ---- For a program ----

Json TotalsJson(const Totals& totals) {
  return {{"waits", totals.waits},
          {"elapsed_ns", totals.elapsed_ns},
          {"cpu_ns_per_wait", Each(totals.cpu_ns, totals)},
          {"cpu_share", CpuShare(totals)},
          {"wake_ups_per_wait", Each(totals.wake_ups, totals)},
          {"timer_wake_ups_per_wait", Each(totals.timer_wake_ups, totals)},
          {"latency_ns_per_wait", Each(totals.latency_ns, totals)},
          {"cost_ns_per_wait", Each(totals.cost_ns, totals)},
          {"optimum_ns_per_wait", Each(totals.optimum_ns, totals)},
          {"relative_cost", RelativeCost(totals)},
          {"relative_to_dozing", RelativeToDozing(totals)},
          {"most_above_twice_ns", totals.most_above_twice_ns}};
}

Json PoliciesJson(const SimulationSettings& settings, const std::vector<Totals>& policies) {
  Json json = Json::object();
  for (size_t i = 0; i < policies.size(); ++i) {
    json[PollKindName(settings.policies[i])] = TotalsJson(policies[i]);
  }
  return json;
}

Json FamilyJson(const SimulationSettings& settings, const FamilyResult& family) {
  Json json = {{"name", family.name}, {"policies", PoliciesJson(settings, family.policies)}};
  for (const TraceResult& trace : family.traces) {
    json["traces"].push_back(
        {{"name", trace.name}, {"policies", PoliciesJson(settings, trace.policies)}});
  }
  for (size_t i = 0; i < family.sweep.size(); ++i) {
    Json point = TotalsJson(family.sweep[i]);
    point["max_ns"] = kSweepNs[i];
    json["sweep"].push_back(std::move(point));
  }
  return json;
}

Json HostJson(const SimulationSettings& settings, const HostResult& result) {
  Json json = {{"name", result.host.name},
               {"wake_ns", result.host.sleep.wake_ns},
               {"sleep_cpu_ns", result.host.sleep.cpu_ns},
               {"families", Json::array()},
               {"relative_sums", Json::object()}};
  for (const FamilyResult& family : result.families) {
    json["families"].push_back(FamilyJson(settings, family));
  }
  for (size_t i = 0; i < settings.policies.size(); ++i) {
    json["relative_sums"][PollKindName(settings.policies[i])] = result.relative_sums[i];
  }
  return json;
}

}  // namespace

std::string SimulationTable(const SimulationSettings& settings,
                            const std::vector<HostResult>& hosts) {
  std::string text;
  for (const HostResult& host : hosts) {
    if (!text.empty()) text += '\n';
    text += HostTable(settings, host);
  }
  return text;
}

std::string SimulationJson(const SimulationSettings& settings,
                           const std::vector<HostResult>& hosts) {
  Json json = {{"format", "ringside poll simulation"},
               {"version", 1},
               {"price", settings.poll.price},
               {"max_ns", settings.poll.max_ns},
               {"waits", settings.made_up.waits},
               {"seed", settings.made_up.seed},
               {"hosts", Json::array()}};
  for (const HostResult& host : hosts) json["hosts"].push_back(HostJson(settings, host));
  return json.dump(1) + '\n';
}

}  // namespace ringside
