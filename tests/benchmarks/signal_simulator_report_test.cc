// The signal simulator's files and options: traces, the optimum on them, JSON, the tables, what it
// checks and what it says of bad input.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "benchmarks/signal_simulator/check.h"
#include "benchmarks/signal_simulator/families.h"
#include "benchmarks/signal_simulator/offline.h"
#include "benchmarks/signal_simulator/options.h"
#include "benchmarks/signal_simulator/report.h"
#include "benchmarks/signal_simulator/trace_file.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum SignalEventKind;
using Json = nlohmann::json;

// ---- Traces ----

constexpr char kHeader[] = "# ringside signal trace 1\n";

absl::StatusOr<std::vector<SignalTrace>> Read(const std::string& text) {
  std::istringstream file(text);
  return ReadSignalTraces(file, "t.csv");
}

std::string ErrorOf(const std::string& text) {
  const auto traces = Read(text);
  return traces.ok() ? "" : std::string(traces.status().message());
}

TEST(SignalTraceFileTest, WhatIsWrittenIsRead) {
  const SignalTrace trace = {.queue = "disk0.0",
                             .events = {{0, kTook, 3},
                                        {7, kShown, 65'535},
                                        {7, kHeld, 65'535},
                                        {9, kRaised, 0},
                                        {9, kConsumed, 1}}};
  const auto traces = Read(SignalTraceText(trace));
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_THAT(*traces, SizeIs(1));
  EXPECT_EQ(traces->front().queue, trace.queue);
  EXPECT_EQ(traces->front().events, trace.events);
}

TEST(SignalTraceFileTest, KeepsQueuesApart) {
  const auto traces = Read(std::string(kHeader) + "b,5,took,1\na,3,took,2\nb,6,shown,3\n");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_THAT(*traces, SizeIs(2));
  EXPECT_THAT((*traces)[0].events,
              ElementsAre(SignalEvent{5, kTook, 1}, SignalEvent{6, kShown, 3}));
  EXPECT_THAT((*traces)[1].events, SizeIs(1));
}

TEST(SignalTraceFileTest, NamesTheLineThatIsWrong) {
  for (const char* line : {"a,5,took,1,2\n", ",5,took,1\n", "a,-1,took,1\n", "a,5,drank,1\n",
                           "a,5,took,65536\n", "a,5,took,1"}) {
    EXPECT_EQ(ErrorOf(kHeader + std::string("a,4,took,1\n") + line),
              "'t.csv' is damaged or truncated at line 3; record it again")
        << line;
  }
  EXPECT_EQ(ErrorOf(kHeader + std::string("a,4,took,1\na,3,took,2\n")),
            "'t.csv' goes back in time at line 3; record it again");
}

TEST(SignalTraceFileTest, RefusesOtherFiles) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("does not begin with '# ringside signal trace 1'"));
  EXPECT_THAT(ErrorOf("# ringside signal trace 2\n"), HasSubstr("give a signal trace"));
  EXPECT_THAT(ErrorOf(kHeader), HasSubstr("holds no events"));
  EXPECT_THAT(std::string(ReadSignalTraces("/nonexistent").status().message()),
              HasSubstr("cannot open '/nonexistent'"));
}

TEST(SignalTraceFileTest, ReadsSoManyLinesAndNoMore) {
  std::string text = kHeader;
  for (size_t i = 0; i < kMostSignalEvents; ++i) text += "a,1,took,1\n";
  EXPECT_EQ(ErrorOf(text), "");
  EXPECT_EQ(ErrorOf(text + "a,1,took,1\n"),
            "'t.csv' has more than 1000000 events; give the first part of it");
}

// ---- Bills ----

constexpr SignalPrice kPrice = {.signal_ns = 5'000, .per_ns = 0.1};

// One completion at each of these times.
SignalTrace ShownAt(const std::vector<int64_t>& times_ns) {
  SignalTrace trace;
  for (const int64_t ns : times_ns) {
    trace.events.push_back({ns, kShown, static_cast<uint16_t>(trace.events.size() + 1)});
  }
  return trace;
}

TEST(OfflineTest, NearOnesShareASignal) {
  EXPECT_EQ(LeastCostNs(ShownAt({}), kPrice), 0);
  EXPECT_EQ(LeastCostNs(ShownAt({7}), kPrice), 5'000);
  EXPECT_EQ(LeastCostNs(ShownAt({0, 10'000, 1'000'000}), kPrice), 5'000 + 1'000 + 5'000);
}

// The i-th bit: whether there is a signal behind the i-th arrival, as there is behind the last.
double CostOf(const std::vector<int64_t>& times_ns, size_t signals) {
  double cost = 0;
  size_t first = 0;
  for (size_t i = 0; i < times_ns.size(); ++i) {
    if (i + 1 < times_ns.size() && (signals >> i & 1) == 0) continue;
    cost += kPrice.signal_ns;
    for (; first <= i; ++first) {
      cost += kPrice.per_ns * static_cast<double>(times_ns[i] - times_ns[first]);
    }
  }
  return cost;
}

TEST(OfflineTest, NoChoiceOfSignalsIsCheaper) {
  std::mt19937_64 random(1);
  for (const int64_t mean_ns : {2'000, 20'000, 60'000}) {
    for (int trial = 0; trial < 10; ++trial) {
      std::exponential_distribution<double> gap(1.0 / static_cast<double>(mean_ns));
      std::vector<int64_t> times_ns(10);
      int64_t now_ns = 0;
      for (int64_t& ns : times_ns) ns = now_ns += static_cast<int64_t>(gap(random));
      double least = CostOf(times_ns, 0);
      for (size_t signals = 1; signals < 512; ++signals) {
        least = std::min(least, CostOf(times_ns, signals));
      }
      EXPECT_NEAR(LeastCostNs(ShownAt(times_ns), kPrice), least, 1e-6);
    }
  }
}

TEST(OfflineTest, BillsWhatWasRecorded) {
  const SignalTrace trace = {.events = {{0, kShown, 1},
                                        {0, kRaised, 1},
                                        {10, kShown, 3},
                                        {10, kHeld, 3},
                                        {15, kShown, 4},
                                        {30, kRaised, 4},
                                        {40, kShown, 9},
                                        {50, kConsumed, 9}}};
  const SignalBill bill = AsRecorded(trace);
  EXPECT_EQ(bill.signals, 2u);
  EXPECT_EQ(bill.delay_ns, 2 * 20 + 15);
}

TEST(OfflineTest, EarlyPaysForEachAndHasNoDelay) {
  const auto early = MakeSignaller(SignallerKind::kEarly, {});
  const SignalBill bill = AsDecidedBy(*early, ShownAt({1, 2, 3}));
  EXPECT_EQ(bill.signals, 3u);
  EXPECT_EQ(bill.delay_ns, 0);
}

TEST(OfflineTest, WhoHoldsPaysForTheDelay) {
  SignalTrace trace = ShownAt({10'000, 11'000, 12'000, 90'000});
  trace.events.insert(trace.events.begin(), {0, kTook, 0});
  trace.events.insert(trace.events.begin() + 1, {1, kTook, 8});
  const auto priced = MakeSignaller(SignallerKind::kPriced, {.signal_cost_ns = 5'000});
  const SignalBill bill = AsDecidedBy(*priced, trace);
  EXPECT_EQ(bill.signals, 2u - (bill.signals == 1 ? 1 : 0));
  EXPECT_GT(bill.delay_ns, 5'000);
}

TEST(OfflineTest, GapsOfAnyLengthAreLookedAtInNoTime) {
  SignalTrace trace = ShownAt({0, int64_t{1} << 61});
  trace.events.insert(trace.events.begin(), {0, kTook, 0});
  trace.events.insert(trace.events.begin() + 1, {0, kTook, 60'000});
  for (const SignallerKind kind : kAllSignallers) {
    const auto signaller = MakeSignaller(kind, {.silence_ns = 1'000'000'000});
    EXPECT_LE(AsDecidedBy(*signaller, trace).signals, 2u);
  }
}

TEST(OfflineTest, TakesSoManyCompletionsAndNoMore) {
  SignalTrace trace;
  for (size_t i = 0; i <= kMostCompletions; ++i) {
    trace.events.push_back({0, kShown, static_cast<uint16_t>(i)});
  }
  EXPECT_THAT(FirstPart(trace).events, SizeIs(kMostCompletions));
}

// ---- Options ----

std::string OptionError(const SignalSimulatorOptions& options) {
  const auto settings = ParseSignalOptions(options);
  return settings.ok() ? "" : std::string(settings.status().message());
}

TEST(SignalOptionsTest, SayWhatIsWrong) {
  EXPECT_EQ(OptionError({.policies = {"erly"}}),
            "--policies 'erly' is unknown; did you mean 'early'?");
  EXPECT_EQ(OptionError({.families = {"searial"}}),
            "--family 'searial' is unknown; did you mean 'serial'?");
  EXPECT_THAT(OptionError({.scenario = "depth 33"}), HasSubstr("is in no scenario's name"));
  EXPECT_EQ(OptionError({.length = "2s"}),
            "--length '2s' cannot be; give a time from 1ms to 1s, such as 8us");
  EXPECT_THAT(OptionError({.signal_cost = "0"}), HasSubstr("--signal-cost '0' cannot be"));
  EXPECT_THAT(OptionError({.silence = "now"}), HasSubstr("--silence 'now' cannot be"));
  EXPECT_EQ(OptionError({.price = -1}), "--price -1 cannot be; give 0 to 1000");
  EXPECT_THAT(OptionError({.trace = "/nonexistent"}), HasSubstr("cannot open"));
}

TEST(SignalOptionsTest, AllIsTheDefault) {
  const auto settings = ParseSignalOptions({});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_THAT(settings->policies, SizeIs(std::size(kAllSignallers)));
  EXPECT_GT(settings->scenarios.size(), 100u);
}

TEST(SignalOptionsTest, ChooseInTheOrderOfReports) {
  const auto settings = ParseSignalOptions({.policies = {"cost", "early", "cost"},
                                            .families = {"parallel"},
                                            .scenario = "dear, thinks 20us"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_THAT(settings->policies, ElementsAre(SignallerKind::kEarly, SignallerKind::kCost));
  EXPECT_THAT(settings->scenarios, SizeIs(3));
}

// ---- Reports ----

CaseResult MadeUp(const char* family, uint32_t depth) {
  Scenario scenario = {.family = family, .name = "x", .costs = kMid, .jobs = {{.depth = depth}}};
  const RunResult run = {
      .length_ns = 1'000'000, .done = {100}, .interrupts = 50, .p50_ns = 5'000, .p99_ns = 9'000};
  return {.scenario = scenario, .runs = {run, run, run}};
}

TEST(SignalReportTest, HasALineForEachScenario) {
  CaseResult result = MadeUp("serial", 2);
  result.runs[2].done = {150};
  EXPECT_THAT(SignalSummary(kCheckedPolicies, {result}),
              ::testing::MatchesRegex(".*batched.*\nserial: x +100.0 +1.000 +2.0 +1.000 +2.0 +"
                                      "1.500 +3.0\n"));
  EXPECT_THAT(SignalTables(kCheckedPolicies, {result}), HasSubstr("serial: x\n"));
}

TEST(SignalReportTest, JsonHasAllFigures) {
  CaseResult result = MadeUp("serial", 2);
  result.runs[2].done = {100, 50};
  const Json json = Json::parse(SignalJson(kCheckedPolicies, {}, {result}));
  const Json& cost = json["scenarios"][0]["policies"]["cost"];
  EXPECT_EQ(cost["kiops"], 150);
  EXPECT_EQ(cost["relative"], 1.5);
  EXPECT_EQ(cost["batch"], 3);
  EXPECT_EQ(cost["p99_ns"], 9'000);
  EXPECT_EQ(cost["kiops_by_job"], Json({100, 50}));
}

// ---- The check ----

std::vector<std::string> Offences(const CaseResult& result) {
  return CheckPromises({result});
}

TEST(SignalCheckTest, WhatIsKeptIsNoOffence) {
  CaseResult result = MadeUp("parallel", 32);
  result.runs[2].done = {95};
  EXPECT_THAT(Offences(result), IsEmpty());
}

TEST(SignalCheckTest, NamesWhoFallsBehindTheBetterOfTheTwo) {
  CaseResult result = MadeUp("parallel", 32);
  result.runs[1].done = {110};
  EXPECT_THAT(Offences(result),
              ElementsAre("parallel: x: 0.909 of the rate of the better of early and batched; "
                          "0.93 at least"));
  result.scenario.family = kAdversaries;  // of these the rate says nothing
  EXPECT_THAT(Offences(result), IsEmpty());
}

TEST(SignalCheckTest, ABusyProcessorIsToGain) {
  CaseResult result = MadeUp("serial", 32);
  EXPECT_THAT(Offences(result), ElementsAre(HasSubstr("of early's rate on a busy processor")));
  result.runs[2].done = {130};
  EXPECT_THAT(Offences(result), IsEmpty());
}

TEST(SignalCheckTest, OneAtATimeIsAsEarlyToTheLast) {
  CaseResult result = MadeUp("serial", 1);
  EXPECT_THAT(Offences(result), IsEmpty());
  result.runs[2].done = {101};
  EXPECT_THAT(Offences(result), SizeIs(1));
}

TEST(SignalCheckTest, HoldsHaveAnEndAndAReason) {
  for (const char* family : {"parallel", kAdversaries}) {
    CaseResult result = MadeUp(family, 32);
    result.runs[2].queue.longest_hold_ns = SignalPolicy::kMostNs;
    EXPECT_THAT(Offences(result), IsEmpty());
    result.runs[2].queue.longest_hold_ns = 5'200'000;
    EXPECT_THAT(Offences(result), ElementsAre(HasSubstr("5.200 ms was the longest hold")));
    result.runs[2].queue = {.held_for_nobody = 1};
    EXPECT_THAT(Offences(result), ElementsAre(HasSubstr("a guest with nothing to do")));
  }
}

TEST(SignalCheckTest, TheTailGrowsByASilenceAtMost) {
  CaseResult result = MadeUp("parallel", 32);
  result.runs[2].p99_ns = 9'000 + 20'000;
  EXPECT_THAT(Offences(result), IsEmpty());
  result.runs[2].p99_ns = 9'000 + 30'000;
  EXPECT_THAT(Offences(result), ElementsAre(HasSubstr("silences is p99 above early's")));
}

TEST(SignalCheckTest, ARunThatDidNothingIsAnOffence) {
  CaseResult result = MadeUp("parallel", 32);
  for (RunResult& run : result.runs) run.done = {0};
  EXPECT_THAT(Offences(result), SizeIs(1));
}

}  // namespace
}  // namespace ringside
