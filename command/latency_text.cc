// A latency report as a table with bars, and as JSON.
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/size.h"
#include "command/latency_summary.h"
#include "devices/latency_trace.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr size_t kBarWidth = 60;

double Us(double ns) {
  return ns / 1000;
}

void AppendRow(std::string& table, char letter, const std::string& name,
               const LatencyDistribution& row) {
  absl::StrAppendFormat(&table, "  %c %-22s %9.2f %9.2f %9.2f %9.2f %10.2f %6.1f%%\n", letter, name,
                        Us(static_cast<double>(row.p50)), Us(static_cast<double>(row.p90)),
                        Us(static_cast<double>(row.p99)), Us(static_cast<double>(row.p999)),
                        Us(static_cast<double>(row.max)), 100 * row.share);
}

// Stages as letters, `full_ns` as the whole width.
std::string Bar(const LatencyProfile& profile, double full_ns) {
  std::string bar;
  double until_ns = 0;
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    until_ns += profile.stages_ns[stage];
    const double end = full_ns > 0 ? std::round(until_ns / full_ns * kBarWidth) : 0;
    bar.resize(std::max(bar.size(), static_cast<size_t>(end)), kStages[stage].letter);
  }
  return bar;
}

void AppendSummary(std::string& table, const LatencySummary& summary) {
  absl::StrAppendFormat(&table, "%s (%s) queue %d, %s: %d requests, %s, %d without interrupt\n",
                        Printable(summary.device), Printable(summary.path), summary.queue,
                        RequestKindName(summary.kind), summary.total.count,
                        FormatSize(summary.bytes), summary.interrupts_suppressed);
  absl::StrAppendFormat(&table, "  %-24s %9s %9s %9s %9s %10s %7s\n", "us", "p50", "p90", "p99",
                        "p99.9", "max", "share");
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    AppendRow(table, kStages[stage].letter, StageName(kStages[stage]), summary.stages[stage]);
  }
  AppendRow(table, ' ', "all", summary.total);
  double full_ns = 0;
  for (const LatencyProfile& profile : summary.profiles) {
    full_ns = std::max(full_ns, profile.total_ns);
  }
  for (const LatencyProfile& profile : summary.profiles) {
    absl::StrAppendFormat(&table, "  around %s %10.2f us |%s\n", profile.name, Us(profile.total_ns),
                          Bar(profile, full_ns));
  }
}

Json DistributionJson(const LatencyDistribution& distribution) {
  return {{"count", distribution.count},  {"p50_ns", distribution.p50},
          {"p90_ns", distribution.p90},   {"p99_ns", distribution.p99},
          {"p999_ns", distribution.p999}, {"max_ns", distribution.max},
          {"share", distribution.share}};
}

Json SummaryJson(const LatencySummary& summary) {
  Json stages;
  Json profiles;
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    const std::string name = StageName(kStages[stage]);
    stages[name] = DistributionJson(summary.stages[stage]);
    for (const LatencyProfile& profile : summary.profiles) {
      profiles[profile.name][name] = std::llround(profile.stages_ns[stage]);
    }
  }
  return {{"device", summary.device}, {"path", summary.path},
          {"queue", summary.queue},   {"kind", RequestKindName(summary.kind)},
          {"bytes", summary.bytes},   {"interrupts_suppressed", summary.interrupts_suppressed},
          {"stages", stages},         {"total", DistributionJson(summary.total)},
          {"profiles_ns", profiles}};
}

}  // namespace

std::string LatencyTable(const LatencyReport& report) {
  std::string table;
  for (const LatencySummary& summary : report.summaries) {
    AppendSummary(table, summary);
    table += '\n';
  }
  if (report.summaries.empty()) table += "no request was recorded\n";
  if (report.overwritten > 0) {
    absl::StrAppendFormat(&table,
                          "%d older requests are not in the trace, which keeps the newest\n",
                          report.overwritten);
  }
  if (report.unordered > 0) {
    absl::StrAppendFormat(&table, "%d records are left out, as their stamps run backwards\n",
                          report.unordered);
  }
  return table;
}

std::string LatencyJson(const LatencyReport& report) {
  Json json = {{"queues", Json::array()},
               {"overwritten", report.overwritten},
               {"unordered", report.unordered}};
  for (const LatencySummary& summary : report.summaries) {
    json["queues"].push_back(SummaryJson(summary));
  }
  return JsonDocument(json);
}

}  // namespace ringside
