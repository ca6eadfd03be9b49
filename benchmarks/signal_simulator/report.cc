#include "benchmarks/signal_simulator/report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace ringside {
namespace {

using Json = nlohmann::ordered_json;

template <typename Part, typename Whole>
double Ratio(Part part, Whole whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double Us(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

// What is reported of a run; `first` is that of the first policy.
struct Figures {
  Figures(const RunResult& run, const RunResult& first)
      : kiops(run.kiops()),
        relative(Ratio(run.all_done(), first.all_done())),
        batch(Ratio(run.all_done(), run.interrupts)),
        signals(Ratio(run.queue.raised, run.all_done())),
        guest_us(Ratio(run.guest_busy_ns, run.all_done()) / 1e3),
        polled(Ratio(run.thread.polled_for_held_ns, run.length_ns)),
        idle(Ratio(run.thread.idle_guest_ns, run.length_ns)) {}

  double kiops, relative, batch, signals, guest_us, polled, idle;
};

std::string Header(const std::string& title) {
  return absl::StrFormat("%s\n  %-9s %8s %6s %6s %6s %8s %8s %7s %7s %7s %8s\n", title, "", "kIOPS",
                         "x", "batch", "int/IO", "p50 us", "p99 us", "CPU us", "polled", "idle",
                         "hold us");
}

std::string Line(SignallerKind policy, const RunResult& run, const RunResult& first) {
  const Figures of(run, first);
  std::string line = absl::StrFormat(
      "  %-9s %8.1f %6.3f %6.2f %6.3f %8.1f %8.1f %7.2f %6.1f%% %6.1f%% %8.1f",
      SignallerName(policy), of.kiops, of.relative, of.batch, of.signals, Us(run.p50_ns),
      Us(run.p99_ns), of.guest_us, 100 * of.polled, 100 * of.idle, Us(run.queue.longest_hold_ns));
  for (size_t i = 0; i < kSignalReasons; ++i) {
    if (run.queue.held == 0 || run.queue.reasons[i] == 0) continue;
    line += absl::StrFormat(" %s %.0f%%", SignalReasonName(static_cast<SignalReason>(i)),
                            100 * Ratio(run.queue.reasons[i], run.queue.raised));
  }
  if (run.done.size() > 1) {
    line += "   by job";
    for (size_t i = 0; i < run.done.size(); ++i) line += absl::StrFormat(" %.1f", run.job_kiops(i));
  }
  return line + '\n';
}

Json RunJson(const RunResult& run, const RunResult& first) {
  const Figures of(run, first);
  Json json = {{"kiops", of.kiops},
               {"relative", of.relative},
               {"batch", of.batch},
               {"signals_per_io", of.signals},
               {"p50_ns", run.p50_ns},
               {"p99_ns", run.p99_ns},
               {"guest_cpu_us_per_io", of.guest_us},
               {"polled_for_held", of.polled},
               {"held_with_idle_guest", of.idle},
               {"longest_hold_ns", run.queue.longest_hold_ns},
               {"held_for_nobody", run.queue.held_for_nobody},
               {"kiops_by_job", Json::array()}};
  for (size_t i = 0; i < run.done.size(); ++i) json["kiops_by_job"].push_back(run.job_kiops(i));
  return json;
}

std::string BillLine(const char* name, const SignalBill& bill, const SignalPrice& price,
                     double least_ns) {
  return absl::StrFormat("  %-12s %9d %12.1f %12.1f %7.3f\n", name, bill.signals, Us(bill.delay_ns),
                         bill.CostNs(price) / 1e3, Ratio(bill.CostNs(price), least_ns));
}

}  // namespace

std::string SignalTraceTable(const std::vector<SignallerKind>& policies,
                             const SignallerSettings& settings, const SignalPrice& price,
                             const std::vector<SignalTrace>& traces) {
  std::string table;
  for (const SignalTrace& whole : traces) {
    const SignalTrace trace = FirstPart(whole);
    const double least_ns = LeastCostNs(trace, price);
    table += absl::StrFormat("%-14s %9s %12s %12s %7s\n", whole.queue, "signals", "delay us",
                             "cost us", "x best");
    table += BillLine("as recorded", AsRecorded(trace), price, least_ns);
    for (const SignallerKind kind : policies) {
      // Its turns are what differs, and a trace has those of whoever recorded it.
      if (kind == SignallerKind::kBatched) continue;
      const std::unique_ptr<Signaller> signaller = MakeSignaller(kind, settings);
      table += BillLine(SignallerName(kind), AsDecidedBy(*signaller, trace), price, least_ns);
    }
    table += absl::StrFormat("  %-12s %9s %12s %12.1f\n\n", "best", "", "", least_ns / 1e3);
  }
  return table;
}

std::string SignalSummary(const std::vector<SignallerKind>& policies,
                          const std::vector<CaseResult>& cases) {
  std::string table = absl::StrFormat("%-48s %8s", "", "kIOPS");
  for (const SignallerKind kind : policies) table += absl::StrFormat(" %13s", SignallerName(kind));
  table += '\n';
  for (const CaseResult& result : cases) {
    const RunResult& first = result.runs[0];
    table += absl::StrFormat("%-48s %8.1f", result.scenario.family + ": " + result.scenario.name,
                             first.kiops());
    for (const RunResult& run : result.runs) {
      const Figures of(run, first);
      table += absl::StrFormat("  %5.3f %5.1f", of.relative, of.batch);
    }
    table += '\n';
  }
  return table;
}

std::string SignalTables(const std::vector<SignallerKind>& policies,
                         const std::vector<CaseResult>& cases) {
  std::string table;
  for (const CaseResult& result : cases) {
    table += Header(result.scenario.family + ": " + result.scenario.name);
    for (size_t i = 0; i < policies.size(); ++i) {
      table += Line(policies[i], result.runs[i], result.runs[0]);
    }
    table += '\n';
  }
  return table;
}

std::string SignalJson(const std::vector<SignallerKind>& policies, const RunOptions& options,
                       const std::vector<CaseResult>& cases) {
  Json json = {{"format", "ringside signal simulation"},
               {"version", 1},
               {"length_ns", options.length_ns},
               {"seed", options.seed},
               {"signal_cost_ns", options.signaller.signal_cost_ns},
               {"silence_ns", options.signaller.silence_ns},
               {"scenarios", Json::array()}};
  for (const CaseResult& result : cases) {
    Json of_case = {{"family", result.scenario.family}, {"name", result.scenario.name}};
    for (size_t i = 0; i < policies.size(); ++i) {
      of_case["policies"][SignallerName(policies[i])] = RunJson(result.runs[i], result.runs[0]);
    }
    json["scenarios"].push_back(std::move(of_case));
  }
  return json.dump(1) + '\n';
}

}  // namespace ringside
