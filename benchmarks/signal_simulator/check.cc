#include "benchmarks/signal_simulator/check.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "benchmarks/signal_simulator/families.h"

namespace ringside {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// Runs of a case.
const RunResult& Early(const CaseResult& result) {
  return result.runs[0];
}
const RunResult& Batched(const CaseResult& result) {
  return result.runs[1];
}
const RunResult& Cost(const CaseResult& result) {
  return result.runs[2];
}

// ---- Whom a promise concerns ----

bool All(const Scenario& /*scenario*/) {
  return true;
}

// What an adversary does depends on the policy, so the rates say nothing.
bool Workloads(const Scenario& scenario) {
  return scenario.family != kAdversaries;
}

bool OneAtATime(const Scenario& scenario) {
  return Workloads(scenario) && scenario.jobs.size() == 1 && scenario.jobs[0].depth == 1 &&
         scenario.jobs[0].changes.empty();
}

// Larger batches are 2% apart there, and noise hides which is better.
bool VeryDeep(const Scenario& scenario) {
  return Workloads(scenario) && scenario.jobs[0].depth >= 128;
}

// What the thread serves itself completes one request at a time, with nothing in flight: no
// interrupt may wait then. And a look comes when all that the turn has taken is served.
bool OnItsWay(const Scenario& scenario) {
  return Workloads(scenario) && scenario.device.kind != DeviceModel::Kind::kInline;
}

bool NotVeryDeep(const Scenario& scenario) {
  return OnItsWay(scenario) && !VeryDeep(scenario);
}

// No batch to be had, or none that may wait: then nothing is lost either.
bool Inline(const Scenario& scenario) {
  return scenario.device.kind == DeviceModel::Kind::kInline;
}

// The processor is what limits these, and an interrupt costs it as much as several requests.
bool BusyProcessor(const Scenario& scenario) {
  return (scenario.family == "serial" || scenario.family == "bursts") &&
         scenario.costs.interrupt_ns >= kMid.interrupt_ns && scenario.jobs[0].depth == 32 &&
         scenario.device.service_ns <= 20'000;
}

// ---- What it is about ----

double HeldForNobody(const CaseResult& result) {
  return static_cast<double>(Cost(result).queue.held_for_nobody);
}

double LongestHoldMs(const CaseResult& result) {
  return static_cast<double>(Cost(result).queue.longest_hold_ns) / 1e6;
}

double OfEarly(const CaseResult& result) {
  return Cost(result).kiops() / Early(result).kiops();
}

double OfTheBetter(const CaseResult& result) {
  return Cost(result).kiops() / std::max(Early(result).kiops(), Batched(result).kiops());
}

// Twice the time of a guest that sleeps, from a signal to its first new request, is as long as its
// silence is borne.
double SilencesOfP99(const CaseResult& result) {
  const Scenario& scenario = result.scenario;
  const GuestCosts& costs = scenario.costs;
  int64_t reaction_ns = scenario.thread.signal_ns + costs.to_halted_ns + costs.interrupt_ns +
                        costs.entry_ns + costs.wake_ns + costs.fetch_ns + costs.reap_ns +
                        costs.submit_ns;
  for (const Job& job : scenario.jobs) reaction_ns += job.think_ns;
  for (const ForeignLoad& load : scenario.foreign) reaction_ns += load.for_ns;
  return static_cast<double>(Cost(result).p99_ns - Early(result).p99_ns) /
         static_cast<double>(2 * reaction_ns);
}

// ---- The promises ----

struct Promise {
  bool (*concerns)(const Scenario& scenario);
  double (*measured)(const CaseResult& result);
  double least;
  double most;
  const char* what;
};

// A hold ends with the next look, which is not before the turn's end.
constexpr double kMostHeldMs = SignalPolicy::kMostNs / 1e6 + 0.1;

constexpr Promise kPromises[] = {
    {All, HeldForNobody, 0, 0, "interrupts began to wait for a guest with nothing to do"},
    {All, LongestHoldMs, 0, kMostHeldMs, "ms was the longest hold"},
    {OneAtATime, OfEarly, 1, 1, "of early's rate with one request at a time"},
    {NotVeryDeep, OfTheBetter, 0.93, kNone, "of the rate of the better of early and batched"},
    {VeryDeep, OfTheBetter, 0.85, kNone, "of the rate of the better of early and batched"},
    {VeryDeep, OfEarly, 1, kNone, "of early's rate"},
    {Inline, OfEarly, 0.97, kNone, "of early's rate"},
    {BusyProcessor, OfEarly, 1.2, kNone, "of early's rate on a busy processor"},
    {OnItsWay, SilencesOfP99, -kNone, 1, "silences is p99 above early's"},
};

}  // namespace

std::vector<std::string> CheckPromises(const std::vector<CaseResult>& cases) {
  std::vector<std::string> offences;
  for (const CaseResult& result : cases) {
    const Scenario& scenario = result.scenario;
    for (const Promise& promise : kPromises) {
      if (!promise.concerns(scenario)) continue;
      const double measured = promise.measured(result);
      // Written so that what is no number is an offence.
      if (measured >= promise.least && measured <= promise.most) continue;
      offences.push_back(absl::StrFormat("%s: %s: %.3f %s; %g %s", scenario.family, scenario.name,
                                         measured, promise.what,
                                         measured > promise.most ? promise.most : promise.least,
                                         measured > promise.most ? "at most" : "at least"));
    }
  }
  return offences;
}

}  // namespace ringside
