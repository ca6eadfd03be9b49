#include "vmm/explanation_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "poll/policy.h"
#include "vmm/poll_settings.h"

namespace ringside {
namespace {

Json TimeJson(int64_t ns) {
  return ns == kWaitForever ? Json() : Json(ns);
}

Json PlanJson(const WaitPlan& plan) {
  return {{"doze_ns", plan.doze_ns}, {"spin_ns", TimeJson(plan.spin_ns)}};
}

Json WaitingJson(const WaitExplanation& waiting) {
  Json waits, candidates = Json::array(), histogram = Json::array();
  for (size_t reason = 0; reason < kWaitReasons; ++reason) {
    waits[WaitReasonName(static_cast<WaitReason>(reason))] = waiting.waits[reason];
  }
  for (const WaitExplanation::Candidate& candidate : waiting.candidates) {
    candidates.push_back({{"name", candidate.name},
                          {"plan", PlanJson(candidate.plan)},
                          {"cost_ns", candidate.cost_ns}});
  }
  for (const WaitExplanation::Bucket& bucket : waiting.histogram) {
    histogram.push_back({{"from_ns", bucket.from_ns},
                         {"to_ns", TimeJson(bucket.to_ns)},
                         {"weight", bucket.weight}});
  }
  return {{"plan", PlanJson(waiting.plan)},
          {"waits", waits},
          {"candidates", candidates},
          {"regret_ns", waiting.regret_ns},
          {"regret_budget_ns", waiting.regret_budget_ns},
          {"histogram", histogram}};
}

Json QueueJson(const ServedQueue& queue) {
  return {{"device", queue.device},
          {"path", queue.path},
          {"queue", queue.index},
          {"requests", queue.counts.requests()},
          {"batches", queue.counts.batches},
          {"kicks", queue.counts.kicks},
          {"share_found_by_polling", ShareFoundByPolling(queue.counts)}};
}

// Depths and shares of which nothing is known are left out.
Json LessonsJson(const SignalExplanation& signals) {
  Json lessons = Json::array();
  for (size_t depth = 0; depth < SignalExplanation::kDepths; ++depth) {
    const SignalExplanation::Lesson& lesson = signals.lessons[depth];
    Json measured = Json::array();
    for (size_t rung = 0; rung < SignalExplanation::kRungs; ++rung) {
      if (lesson.rates[rung] == 0) continue;
      measured.push_back({{"share", SignalExplanation::kShares[rung]},
                          {"requests_per_second", lesson.rates[rung] * 1e9}});
    }
    if (measured.empty()) continue;
    lessons.push_back({{"requests", uint64_t{1} << depth},
                       {"share", SignalExplanation::kShares[lesson.rung]},
                       {"measured", std::move(measured)}});
  }
  return lessons;
}

Json SignalsJson(const std::vector<QueueExplanation>& queues) {
  Json json = Json::array();
  for (const QueueExplanation& queue : queues) {
    json.push_back({{"device", queue.device},
                    {"queue", queue.queue},
                    {"reaction_ns", std::llround(queue.signals.reaction_ns)},
                    {"silence_ns", std::llround(queue.signals.silence_ns)},
                    {"lessons", LessonsJson(queue.signals)}});
  }
  return json;
}

}  // namespace

Json ExplanationJson(const IoThreadStatistics& thread, const IoThreadExplanation& explanation) {
  const SleepCost& cost = explanation.poll.sleep_cost;
  return {{"id", thread.id},
          {"poll", PollJson(thread.poll)},
          {"sleep_cost",
           {{"cpu_ns", cost.cpu_ns}, {"wake_ns", cost.wake_ns}, {"kick_ns", cost.kick_ns}}},
          {"spin_hits", thread.spin_hits},
          {"spin_misses", thread.spins - thread.spin_hits},
          {"dozes", thread.dozes},
          {"doze_ends", thread.doze_ends},
          {"sleeps", thread.sleeps},
          {"spin_preemptions", thread.preempted},
          {"idle", WaitingJson(explanation.poll.of(Waiting::kIdle))},
          {"in_flight", WaitingJson(explanation.poll.of(Waiting::kInFlight))},
          {"signals", SignalsJson(explanation.queues)}};
}

Json ExplanationsJson(const MachineStatistics& statistics,
                      const std::vector<IoThreadExplanation>& explanations) {
  Json threads = Json::array();
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    const IoThreadExplanation* explanation = FindExplanation(thread.id, explanations);
    if (explanation == nullptr) continue;
    Json json = ExplanationJson(thread, *explanation);
    json["queues"] = Json::array();
    for (const ServedQueue& queue : QueuesServedBy(thread.id, statistics)) {
      json["queues"].push_back(QueueJson(queue));
    }
    threads.push_back(std::move(json));
  }
  return threads;
}

std::vector<ServedQueue> QueuesServedBy(const std::string& io_thread,
                                        const MachineStatistics& statistics) {
  std::vector<ServedQueue> queues;
  const auto add = [&](const auto& device) {
    for (size_t i = 0; i < device.queues.size(); ++i) {
      if (device.queues[i].io_thread != io_thread) continue;
      queues.push_back(
          {.device = device.id, .path = device.path, .index = i, .counts = device.queues[i]});
    }
  };
  for (const DiskStatistics& disk : statistics.disks) add(disk);
  for (const NetworkStatistics& network : statistics.networks) add(network);
  for (const VsockStatistics& vsock : statistics.vsocks) add(vsock);
  return queues;
}

double ShareFoundByPolling(const QueueStatistics& queue) {
  if (queue.batches <= queue.kicks) return 0;
  return 1 - static_cast<double>(queue.kicks) / static_cast<double>(queue.batches);
}

const IoThreadExplanation* FindExplanation(const std::string& io_thread,
                                           const std::vector<IoThreadExplanation>& explanations) {
  const auto found = std::ranges::find(explanations, io_thread, &IoThreadExplanation::io_thread);
  return found != explanations.end() ? &*found : nullptr;
}

}  // namespace ringside
