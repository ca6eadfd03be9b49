// The poll simulator's files and options: recorded traces, JSON, the table, what it checks and what
// it says of bad input.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmarks/poll_simulator/check.h"
#include "benchmarks/poll_simulator/options.h"
#include "benchmarks/poll_simulator/report.h"
#include "benchmarks/poll_simulator/trace_file.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

// ---- Recorded traces ----

constexpr char kHeader[] =
    "# ringside poll trace 1\n"
    "# thread,start_ns,waiting,waited_ns,slept,ready\n";

absl::StatusOr<Family> Read(const std::string& text) {
  std::istringstream file(text);
  return ReadPollTrace(file, "t.csv");
}

TEST(TraceFileTest, KeepsEachThreadsWaitsApart) {
  const auto family = Read(std::string(kHeader) +
                           "b.1,1000,idle,52000,1,ffffffffffffffff\n"
                           "a,5000,in-flight,9000,0,1\n"
                           "b.1,61000,in-flight,0,0,1a\n"
                           "b.1,61000,idle,1,1,0\n");
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_EQ(family->name, "recorded");
  ASSERT_THAT(family->traces, SizeIs(2));
  EXPECT_EQ(family->traces[1].name, "a");
  EXPECT_THAT(family->traces[1].waits, SizeIs(1));
  EXPECT_EQ(family->traces[0].name, "b.1");
  const std::vector<Wait>& waits = family->traces[0].waits;
  ASSERT_THAT(waits, SizeIs(3));
  EXPECT_EQ(waits[0].what, Waiting::kIdle);
  EXPECT_EQ(waits[0].waited_ns, 52'000);
  EXPECT_EQ(waits[0].busy_ns, 61'000 - 53'000);
  EXPECT_EQ(waits[0].ready, UINT64_MAX);
  EXPECT_EQ(waits[1].what, Waiting::kInFlight);
  EXPECT_EQ(waits[1].ready, 0x1au);
  EXPECT_EQ(waits[1].busy_ns, 0);
  EXPECT_EQ(waits[2].busy_ns, 0);
}

TEST(TraceFileTest, NeedsNoColumnNames) {
  const auto family = Read("# ringside poll trace 1\n0,1000,idle,52000,1,2\n");
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_THAT(family->traces[0].waits, SizeIs(1));
}

TEST(TraceFileTest, RefusesWhatIsNoTrace) {
  for (const char* text :
       {"", "\n", "# ringside poll trace", "0,1000,idle,52000,1,2\n", "\xff\0"}) {
    EXPECT_THAT(Read(text).status(), IsBadInput("t.csv", "is no poll trace")) << text;
  }
  EXPECT_THAT(Read("# ringside poll trace 2\n").status(), IsBadInput("t.csv", "version '2'"));
  EXPECT_THAT(Read("# ringside poll trace 10\n").status(), IsBadInput("t.csv", "version '10'"));
  EXPECT_THAT(Read(kHeader).status(), IsBadInput("t.csv", "holds no waits"));
  EXPECT_THAT(ReadPollTrace("/nonexistent/t.csv").status(),
              IsBadInput("/nonexistent/t.csv", "No such file"));
}

TEST(TraceFileTest, NamesTheLineThatIsDamaged) {
  for (const char* row : {
           "\n",
           "0,1000,idle,52000,1\n",
           "0,1000,idle,52000,1,2,3\n",
           ",1000,idle,52000,1,2\n",
           "0,-1,idle,52000,1,2\n",
           "0,,idle,52000,1,2\n",
           "0,9223372036854775807,idle,52000,1,2\n",
           "0,1000,in flight,52000,1,2\n",
           "0,1000,,52000,1,2\n",
           "0,1000,idle,-52000,1,2\n",
           "0,1000,idle,9999999999999999999,1,2\n",
           "0,1000,idle,52000.5,1,2\n",
           "0,1000,idle,52000,2,2\n",
           "0,1000,idle,52000,true,2\n",
           "0,1000,idle,52000,1,10000000000000000\n",
           "0,1000,idle,52000,1,0x2\n",
           "0,1000,idle,52000,1,2 \n",
           "0,1000,idle,52000,1,2\r\n",
           "0,1000,idle,52000,1,2",  // cut short
           "0,1000,idle,52000,1,-2\n",
           "thread,start_ns,waiting,waited_ns,slept,ready\n",
       }) {
    const std::string text = absl::StrCat(kHeader, "0,0,idle,1000,1,2\n", row);
    EXPECT_THAT(Read(text).status(), IsBadInput("t.csv", "truncated at line 4")) << row;
  }
}

TEST(TraceFileTest, RefusesWaitsThatOverlap) {
  const std::string text = std::string(kHeader) +
                           "0,1000,idle,5000,1,2\n"
                           "1,2000,idle,5000,1,2\n"  // another thread may
                           "0,5999,idle,5000,1,2\n";
  EXPECT_THAT(Read(text).status(), IsBadInput("t.csv", "line 5 that begins before"));
}

// ---- Reports ----

// Two waits of 5 and 20 us on a host where a sleep costs 6 and 4.
SimulationSettings Recorded() {
  SimulationSettings settings = {
      .hosts = {kBareMetal},
      .policies = {PollKind::kNever, PollKind::kFixed},
      .families = {},
      .recorded = Family{.name = "recorded",
                         .traces = {{.name = "thread 0",
                                     .waits = {{.waited_ns = 5'000, .busy_ns = 9'000},
                                               {.waited_ns = 20'000, .busy_ns = 0}}}}}};
  settings.poll.max_ns = 10'000;
  settings.sweep = true;
  return settings;
}

TEST(ReportTest, JsonHoldsEveryFigure) {
  const SimulationSettings settings = Recorded();
  const Json json = Json::parse(SimulationJson(settings, Simulate(settings)));
  EXPECT_EQ(json["format"], "ringside poll simulation");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["max_ns"], 10'000);
  const Json& host = json["hosts"][0];
  EXPECT_EQ(host["name"], "bare-metal");
  EXPECT_EQ(host["wake_ns"], 6'000);
  EXPECT_EQ(host["sleep_cpu_ns"], 4'000);
  const Json& family = host["families"][0];
  EXPECT_EQ(family["name"], "recorded");
  const Json& fixed = family["policies"]["fixed"];
  EXPECT_EQ(fixed["waits"], 2);
  EXPECT_EQ(fixed["elapsed_ns"], 40'000);
  EXPECT_EQ(fixed["cpu_ns_per_wait"], 9'500);
  EXPECT_EQ(fixed["cpu_share"], 0.475);
  EXPECT_EQ(fixed["wake_ups_per_wait"], 0.5);
  EXPECT_EQ(fixed["timer_wake_ups_per_wait"], 0);
  EXPECT_EQ(fixed["latency_ns_per_wait"], 3'000);
  EXPECT_EQ(fixed["cost_ns_per_wait"], 12'500);
  EXPECT_EQ(fixed["optimum_ns_per_wait"], 7'500);
  EXPECT_EQ(fixed["relative_cost"], 25.0 / 15);
  EXPECT_EQ(fixed["relative_to_dozing"], 25.0 / 9);
  EXPECT_EQ(fixed["most_above_twice_ns"], 0);
  EXPECT_EQ(family["policies"]["never"]["cost_ns_per_wait"], 10'000);
  EXPECT_EQ(family["traces"][0]["name"], "thread 0");
  EXPECT_EQ(family["traces"][0]["policies"], family["policies"]);
  EXPECT_EQ(host["relative_sums"]["never"], 20.0 / 15);
}

TEST(ReportTest, JsonHoldsTheSweepFromNeverOn) {
  const SimulationSettings settings = Recorded();
  const Json json = Json::parse(SimulationJson(settings, Simulate(settings)));
  const Json& family = json["hosts"][0]["families"][0];
  ASSERT_EQ(family["sweep"].size(), std::size(kSweepNs));
  EXPECT_EQ(family["sweep"][0]["max_ns"], 0);
  EXPECT_EQ(family["sweep"][0]["cost_ns_per_wait"],
            family["policies"]["never"]["cost_ns_per_wait"]);
  EXPECT_EQ(family["sweep"].back()["max_ns"], 128'000);
  EXPECT_EQ(family["sweep"].back()["latency_ns_per_wait"], 0);
}

TEST(ReportTest, AnInfiniteFigureIsNullInJson) {
  SimulationSettings settings = Recorded();
  settings.recorded->traces[0].waits = {{.waited_ns = 0}};
  settings.policies = {PollKind::kNever};
  settings.hosts = {{"free", {.wake_ns = 5, .cpu_ns = 5}}};
  auto results = Simulate(settings);
  results[0].families[0].policies[0] = {.waits = 1, .cost_ns = 1};
  const Json json = Json::parse(SimulationJson(settings, results));
  EXPECT_TRUE(json["hosts"][0]["families"][0]["policies"]["never"]["relative_cost"].is_null());
}

TEST(ReportTest, TheTableHasALineAPolicyAndTheSum) {
  const SimulationSettings settings = Recorded();
  const std::string table = SimulationTable(settings, Simulate(settings));
  EXPECT_THAT(table, HasSubstr("Host bare-metal: waking takes 6 us, a sleep burns 4 us of CPU"));
  EXPECT_THAT(table, HasSubstr("\nrecorded "));
  // CPU, its share, wake-ups, timers, latency, cost, best, both ratios.
  EXPECT_THAT(table, ::testing::ContainsRegex("\n  fixed +9\\.50 +47\\.5 +0\\.500 +0\\.000 +3\\.00 "
                                              "+12\\.50 +7\\.50 +1\\.667 +2\\.778\n"));
  EXPECT_THAT(table, HasSubstr("\n  fixed 128us "));
  EXPECT_THAT(table, ::testing::ContainsRegex("\nsum over families .*\n  never +1\\.333\n"));
}

// ---- Promises ----

// A result of CheckSettings with one family, in which all cost as much.
HostResult Even(const std::string& family) {
  const Totals same = {.cost_ns = 100, .optimum_ns = 80};
  return {.host = kBareMetal,
          .families = {{.name = family,
                        .traces = {{.name = "t", .policies = {same, same, same}}},
                        .policies = {same, same, same}}},
          .relative_sums = {1.25, 1.25, 1.24}};
}

TEST(CheckTest, NothingIsSaidOfKeptPromises) {
  HostResult result = Even("adversary-x");
  result.families[0].policies[2].cost_ns = 104.9;
  result.families[0].traces[0].policies[2].most_above_twice_ns = 639'000;
  EXPECT_THAT(CheckPromises({result}).offences, ElementsAre());
}

TEST(CheckTest, TheFamilyIsNamedWhereARivalIsBetter) {
  for (const size_t rival : {0, 1}) {
    HostResult result = Even("x");
    result.families[0].policies[rival].cost_ns = 95;
    const auto offences = CheckPromises({Even("y"), result}).offences;
    ASSERT_THAT(offences, SizeIs(1));
    EXPECT_THAT(offences[0], HasSubstr("host bare-metal, family x: cost is 1.250 x the optimum"));
    EXPECT_THAT(offences[0], HasSubstr("1.053 times the better"));
  }
}

TEST(CheckTest, TheRivalIsNamedWhoHasNoMoreInTheSum) {
  HostResult result = Even("x");
  result.relative_sums = {1.24, 1.25, 1.24};
  const auto offences = CheckPromises({result}).offences;
  ASSERT_THAT(offences, SizeIs(1));
  EXPECT_THAT(offences[0], HasSubstr("grow-shrink 1.240; it must be below"));
  result.relative_sums = {1.25, 1.23, 1.24};
  EXPECT_THAT(CheckPromises({result}).offences[0], HasSubstr("weighted 1.230; it must be below"));
}

TEST(CheckTest, TheTraceIsNamedThatBrokeTheBound) {
  HostResult result = Even("adversary-x");
  result.families[0].traces[0].policies[2].most_above_twice_ns = 641'000;
  const auto offences = CheckPromises({result}).offences;
  ASSERT_THAT(offences, SizeIs(1));
  EXPECT_THAT(offences[0], HasSubstr("family adversary-x, trace 't': cost was 641 us above"));
}

TEST(CheckTest, BothHostsAndAllFamiliesAreTried) {
  const SimulationSettings settings = CheckSettings({.waits = 10});
  EXPECT_EQ(settings.families, FamilyNames());
  const Verdict verdict = CheckPromises(Simulate(settings));
  EXPECT_THAT(verdict.table, HasSubstr("bare-metal"));
  EXPECT_THAT(verdict.table, HasSubstr("slow"));
  for (const std::string& name : FamilyNames()) EXPECT_THAT(verdict.table, HasSubstr(name));
}

// ---- Options ----

TEST(SimulatorOptionsTest, ByDefaultAllIsTried) {
  const auto settings = ParseOptions({});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_THAT(settings->hosts, SizeIs(2));
  EXPECT_THAT(settings->policies, SizeIs(6));
  EXPECT_EQ(settings->families, FamilyNames());
  EXPECT_EQ(settings->poll.max_ns, 32'000);
  EXPECT_EQ(settings->poll.price, 1);
}

TEST(SimulatorOptionsTest, EveryOptionIsTakenUp) {
  const auto settings = ParseOptions({.host = "slow",
                                      .wake = "12.5us",
                                      .max = "50us",
                                      .price = 0.5,
                                      .waits = 7,
                                      .seed = -1,
                                      .policies = {"cost", "never", "cost"},
                                      .families = {"poisson", "periodic"},
                                      .sweep = true});
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_THAT(settings->hosts, SizeIs(1));
  EXPECT_EQ(settings->hosts[0].name, "own");
  EXPECT_EQ(settings->hosts[0].sleep.wake_ns, 12'500);
  EXPECT_EQ(settings->hosts[0].sleep.cpu_ns, kSlow.sleep.cpu_ns);
  EXPECT_EQ(settings->poll.max_ns, 50'000);
  EXPECT_EQ(settings->poll.price, 0.5);
  EXPECT_EQ(settings->made_up.waits, 7u);
  EXPECT_EQ(settings->made_up.seed, UINT64_MAX);
  EXPECT_THAT(settings->policies, ElementsAre(PollKind::kCost, PollKind::kNever));
  EXPECT_THAT(settings->families, ElementsAre("periodic", "poisson"));
  EXPECT_TRUE(settings->sweep);
  EXPECT_FALSE(settings->recorded.has_value());
}

TEST(SimulatorOptionsTest, RefusesWhatMeansNothing) {
  const auto error = [](const SimulatorOptions& options) { return ParseOptions(options).status(); };
  EXPECT_THAT(error({.host = "slw"}), IsBadInput("--host 'slw'", "did you mean 'slow'?"));
  EXPECT_THAT(error({.wake = "0"}), IsBadInput("--wake '0'", "such as 8us"));
  EXPECT_THAT(error({.wake = "2s"}), IsBadInput("--wake '2s'", "to 1s"));
  EXPECT_THAT(error({.sleep_cpu = "4"}), IsBadInput("--sleep-cpu '4'", "such as 8us"));
  EXPECT_THAT(error({.max = "-1us"}), IsBadInput("--max '-1us'", "from 0 to 1s"));
  EXPECT_THAT(error({.price = 0}), IsBadInput("--price 0", "0.001 to 1000"));
  EXPECT_THAT(error({.price = NAN}), IsBadInput("--price nan", "0.001 to 1000"));
  EXPECT_THAT(error({.waits = 0}), IsBadInput("--waits 0", "give 1 to"));
  EXPECT_THAT(error({.policies = {"cots"}}), IsBadInput("'cots'", "did you mean 'cost'?"));
  EXPECT_THAT(error({.families = {"poison"}}), IsBadInput("'poison'", "did you mean 'poisson'?"));
  EXPECT_THAT(error({.trace = "/nonexistent"}), IsBadInput("/nonexistent", "--poll-trace"));
}

}  // namespace
}  // namespace ringside
