#include "command/poll_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "command/signal_report.h"
#include "poll/policy.h"
#include "vmm/explanation_json.h"
#include "vmm/json_text.h"
#include "vmm/poll_settings.h"

namespace ringside {
namespace {

using Bucket = WaitExplanation::Bucket;

constexpr std::array kBothWaitings = {Waiting::kIdle, Waiting::kInFlight};
constexpr std::array kAllReasons = {WaitReason::kPolicy, WaitReason::kGuard, WaitReason::kPreempted,
                                    WaitReason::kCeiling, WaitReason::kLearning};
constexpr size_t kWeightWidth = 50;
constexpr size_t kMostRows = 24;  // of a histogram on a screen

double TotalWeight(const std::vector<Bucket>& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), 0.0,
                         [](double sum, const Bucket& bucket) { return sum + bucket.weight; });
}

std::string PlanText(const WaitPlan& plan) {
  if (plan.spin_ns == kWaitForever) return "polls until something comes";
  if (plan.doze_ns == 0 && plan.spin_ns == 0) return "sleeps at once";
  std::vector<std::string> steps;
  if (plan.doze_ns > 0) steps.push_back("dozes for " + TimeText(plan.doze_ns));
  if (plan.spin_ns > 0) steps.push_back("polls for " + TimeText(plan.spin_ns));
  steps.emplace_back("sleeps");
  return absl::StrJoin(steps, ", ");
}

const char* ReasonText(WaitReason reason) {
  constexpr std::array kTexts = {"as the policy has it",
                                 "by the plain limit, as what was learned had fallen behind it",
                                 "without polling, as another thread needed the processor",
                                 "cut short, as cpu-max was used up", "before enough was known"};
  return kTexts[static_cast<size_t>(reason)];
}

void AppendReasons(std::string& text, const WaitExplanation& waiting) {
  for (const WaitReason reason : kAllReasons) {
    const uint64_t waits = waiting.waits_by(reason);
    if (waits > 0) absl::StrAppendFormat(&text, "    %9d waits %s\n", waits, ReasonText(reason));
  }
}

void AppendCandidates(std::string& text, const WaitExplanation& waiting) {
  for (const WaitExplanation::Candidate& candidate : waiting.candidates) {
    absl::StrAppendFormat(&text, "    %-8s would have cost %8s lately: %s\n", candidate.name,
                          TimeText(std::llround(candidate.cost_ns)), PlanText(candidate.plan));
  }
}

// Neighbours together, until a screen holds them.
std::vector<Bucket> Rows(std::vector<Bucket> buckets) {
  while (buckets.size() > kMostRows) {
    std::vector<Bucket> pairs;
    for (size_t i = 0; i < buckets.size(); i += 2) {
      pairs.push_back(buckets[i]);
      if (i + 1 == buckets.size()) break;
      pairs.back().to_ns = buckets[i + 1].to_ns;
      pairs.back().weight += buckets[i + 1].weight;
    }
    buckets = std::move(pairs);
  }
  return buckets;
}

struct Mark {
  int64_t at_ns;
  const char* what;
};

// Where a plan changes from one way of waiting to the next.
std::vector<Mark> Marks(const WaitPlan& plan) {
  std::vector<Mark> marks;
  if (plan.doze_ns > 0) marks.push_back({plan.doze_ns, "the doze ends"});
  if (plan.spin_ns > 0 && plan.spin_ns != kWaitForever) {
    marks.push_back({plan.doze_ns + plan.spin_ns, "the polling ends"});
  }
  return marks;
}

// A mark stands behind the row in which it falls.
void AppendHistogram(std::string& text, const WaitExplanation& waiting) {
  const std::vector<Bucket> rows = Rows(waiting.histogram);
  if (rows.empty()) return;
  const double total = TotalWeight(rows);
  const double most = std::ranges::max(rows, {}, &Bucket::weight).weight;
  const std::vector<Mark> marks = Marks(waiting.plan);
  auto mark = marks.begin();
  const auto append_marks = [&](int64_t before_ns) {
    for (; mark != marks.end() && mark->at_ns <= before_ns; ++mark) {
      absl::StrAppendFormat(&text, "    ------------------- %s: %s\n", TimeText(mark->at_ns),
                            mark->what);
    }
  };
  for (const Bucket& row : rows) {
    append_marks(row.from_ns);
    const auto width = static_cast<size_t>(std::ceil(row.weight / most * kWeightWidth));
    absl::StrAppendFormat(&text, "    %8s to %7s %5.1f%% |%s\n", TimeText(row.from_ns),
                          TimeText(row.to_ns), 100 * row.weight / total, std::string(width, '#'));
  }
  append_marks(kWaitForever);
}

void AppendWaiting(std::string& text, Waiting what, const WaitExplanation& waiting) {
  absl::StrAppendFormat(&text, "  %s: %s\n", WaitingName(what), PlanText(waiting.plan));
  AppendReasons(text, waiting);
  AppendCandidates(text, waiting);
  if (waiting.regret_budget_ns > 0) {
    absl::StrAppendFormat(&text, "    regret %s of %s\n", TimeText(waiting.regret_ns),
                          TimeText(waiting.regret_budget_ns));
  }
  AppendHistogram(text, waiting);
}

void AppendThread(std::string& text, const IoThreadStatistics& thread,
                  const PollExplanation& explanation) {
  absl::StrAppendFormat(&text, "I/O thread %s: %s\n", thread.id, PollText(thread.poll));
  const SleepCost& cost = explanation.sleep_cost;
  if (cost.cpu_ns > 0) {
    absl::StrAppendFormat(&text,
                          "  a sleep costs %s of CPU time, and %s until the thread runs (%s when a "
                          "guest kicks)\n",
                          TimeText(cost.cpu_ns), TimeText(cost.wake_ns), TimeText(cost.kick_ns));
  }
  absl::StrAppendFormat(
      &text, "  %d hits, %d misses, %d dozes (%d to their end), %d sleeps; preempted %d times\n",
      thread.spin_hits, thread.spins - thread.spin_hits, thread.dozes, thread.doze_ends,
      thread.sleeps, thread.preempted);
  for (const Waiting what : kBothWaitings) AppendWaiting(text, what, explanation.of(what));
}

// Null: it is on its way to another thread.
const QueueExplanation* FindQueue(const ServedQueue& queue,
                                  const std::vector<QueueExplanation>& explanations) {
  const auto found = std::ranges::find_if(explanations, [&](const QueueExplanation& each) {
    return each.device == queue.device && each.queue == queue.index;
  });
  return found != explanations.end() ? &*found : nullptr;
}

void AppendQueue(std::string& text, const ServedQueue& queue,
                 const std::vector<QueueExplanation>& explanations) {
  absl::StrAppendFormat(
      &text, "  queue %d of %s: %d requests in %d batches, %d kicks: %.1f%% found by polling\n",
      queue.index, Printable(queue.path), queue.counts.requests(), queue.counts.batches,
      queue.counts.kicks, 100 * ShareFoundByPolling(queue.counts));
  text += SignalCountsText(queue.counts, "    ");
  const QueueExplanation* const explanation = FindQueue(queue, explanations);
  if (explanation != nullptr) text += SignalLessonsText(explanation->signals, "    ");
}

Json PlacementJson(const std::vector<DiskPlacement>& placements) {
  Json disks = Json::array();
  for (const DiskPlacement& placement : placements) {
    Json findings = Json::array();
    for (const Finding& each : placement.findings) {
      findings.push_back({{"check", each.check},
                          {"verdict", VerdictName(each.verdict)},
                          {"text", each.text},
                          {"option", each.command}});
    }
    disks.push_back({{"device", placement.disk}, {"findings", std::move(findings)}});
  }
  return disks;
}

}  // namespace

std::string PollReportText(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations) {
  std::string text;
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    const IoThreadExplanation* explanation = FindExplanation(thread.id, explanations);
    if (explanation == nullptr) continue;
    AppendThread(text, thread, explanation->poll);
    for (const ServedQueue& queue : QueuesServedBy(thread.id, statistics)) {
      AppendQueue(text, queue, explanation->queues);
    }
  }
  return text;
}

std::string PollReportJson(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations,
                           const std::vector<DiskPlacement>& placements) {
  return JsonDocument({{"io_threads", ExplanationsJson(statistics, explanations)},
                       {"placement", PlacementJson(placements)}});
}

}  // namespace ringside
