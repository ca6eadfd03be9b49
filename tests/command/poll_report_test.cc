// What --explain prints, from explanations that are made up.
#include "command/poll_report.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int64_t kForever = kWaitForever;

uint64_t& Waits(WaitExplanation& waiting, WaitReason reason) {
  return waiting.waits[static_cast<size_t>(reason)];
}

class PollReportTest : public ::testing::Test {
 protected:
  PollReportTest() {
    statistics_.disks = {
        {.path = "a\x1b.img",
         .queues = {{.io_thread = "io0", .reads = 500, .kicks = 100, .batches = 400},
                    {.io_thread = "io1", .reads = 3, .kicks = 5, .batches = 3}}}};
    statistics_.io_threads = {{.id = "io0",
                               .poll = {.kind = PollKind::kCost, .price = 2, .cpu_max = 0.2},
                               .spins = 1000,
                               .spin_hits = 900,
                               .dozes = 20,
                               .doze_ends = 15,
                               .preempted = 3,
                               .sleeps = 334},
                              {.id = "io1", .poll = {.kind = PollKind::kAlways}}};
    explanations_ = {{.io_thread = "io0", .poll = {}}, {.io_thread = "io1", .poll = {}}};
    cost().sleep_cost = {.wake_ns = 4123, .kick_ns = 9000, .cpu_ns = 1900};
    WaitExplanation& idle = cost().of(Waiting::kIdle);
    idle.plan = {.doze_ns = 45'600, .spin_ns = 12'345};
    Waits(idle, WaitReason::kPolicy) = 700;
    Waits(idle, WaitReason::kGuard) = 12;
    Waits(idle, WaitReason::kPreempted) = 7;
    Waits(idle, WaitReason::kCeiling) = 5;
    Waits(idle, WaitReason::kLearning) = 3;
    idle.candidates = {{.name = "plain", .plan = {.spin_ns = 9'000}, .cost_ns = 123'456},
                       {.name = "doze", .plan = idle.plan, .cost_ns = 60'000}};
    idle.histogram = {{.from_ns = 0, .to_ns = 1000, .weight = 10},
                      {.from_ns = 32'000, .to_ns = 45'000, .weight = 20.5},
                      {.from_ns = 45'000, .to_ns = 60'000, .weight = 50},
                      {.from_ns = 100'000'000, .to_ns = kForever, .weight = 0.5}};
    idle.regret_ns = -1'500;
    idle.regret_budget_ns = 300'000;
    explanations_[1].poll.of(Waiting::kInFlight).plan = {.spin_ns = kForever};
  }
  PollExplanation& cost() { return explanations_[0].poll; }
  std::string Text() const { return PollReportText(statistics_, explanations_); }
  Json ParsedJson() const { return Json::parse(PollReportJson(statistics_, explanations_)); }

  MachineStatistics statistics_;
  std::vector<IoThreadExplanation> explanations_;
};

TEST_F(PollReportTest, TellsWhyInWords) {
  const std::string bar(50, '#');
  EXPECT_EQ(
      Text(),
      "I/O thread io0: poll=cost,price=2,cpu-max=20%\n"
      "  a sleep costs 1.9us of CPU time, and 4.12us until the thread runs (9us when a guest "
      "kicks)\n"
      "  900 hits, 100 misses, 20 dozes (15 to their end), 334 sleeps; preempted 3 times\n"
      "  idle: dozes for 45.6us, polls for 12.3us, sleeps\n"
      "          700 waits as the policy has it\n"
      "           12 waits by the plain limit, as what was learned had fallen behind it\n"
      "            7 waits without polling, as another thread needed the processor\n"
      "            5 waits cut short, as cpu-max was used up\n"
      "            3 waits before enough was known\n"
      "    plain    would have cost    123us lately: polls for 9us, sleeps\n"
      "    doze     would have cost     60us lately: dozes for 45.6us, polls for 12.3us, "
      "sleeps\n"
      "    regret -1.5us of 300us\n"
      "           0 to     1us  12.3% |##########\n"
      "        32us to    45us  25.3% |#####################\n"
      "        45us to    60us  61.7% |" +
          bar +
          "\n"
          "    ------------------- 45.6us: the doze ends\n"
          "    ------------------- 57.9us: the polling ends\n"
          "       100ms to    ever   0.6% |#\n"
          "  in flight: sleeps at once\n"
          "  queue 0 of a\\x1b.img: 500 requests in 400 batches, 100 kicks: 75.0% found by "
          "polling\n"
          "I/O thread io1: poll=always\n"
          "  0 hits, 0 misses, 0 dozes (0 to their end), 0 sleeps; preempted 0 times\n"
          "  idle: sleeps at once\n"
          "  in flight: polls until something comes\n"
          "  queue 1 of a\\x1b.img: 3 requests in 3 batches, 5 kicks: 0.0% found by polling\n");
}

TEST_F(PollReportTest, TellsWhenTheGuestWasInterruptedAndWhy) {
  QueueStatistics& queue = statistics_.disks[0].queues[0];
  queue.interrupts = 100;
  queue.signals = {.raised = {70, 20, 10}, .held = 40, .held_ns = 480'000, .dropped = 3};
  SignalExplanation signals = {.reaction_ns = 12'000, .silence_ns = 24'000};
  signals.lessons[0] = {.rung = 0, .rates = {1e-4}};
  signals.lessons[4] = {.rung = 2, .rates = {4e-4, 5e-4, 6e-4, 0}};
  signals.lessons[9] = {.rung = 3, .rates = {0, 0, 0, 1e-3}};
  explanations_[0].queues = {{.device = "", .queue = 0, .signals = signals}};
  EXPECT_THAT(Text(), HasSubstr("found by polling\n"
                                "    interrupts: 100, one for 5.0 requests\n"
                                "    held: 40, for 12us on average, 480us in all; not needed then: "
                                "3\n"
                                "             70 as the guest had little or nothing else to do\n"
                                "             20 as it does best without waiting\n"
                                "             10 as somebody waits for one completion alone\n"
                                "    with 1 request: interrupts at once; measured: at once "
                                "100000/s\n"
                                "    with 16 to 31 requests: interrupts at a quarter at hand; "
                                "measured: at once 400000/s, at half at hand 500000/s, at a "
                                "quarter at hand 600000/s\n"
                                "    with 512 requests and more: interrupts at none at hand; "
                                "measured: at none at hand 1000000/s\n"
                                "    the guest got on every 12us at most; none waits if it is "
                                "silent for 24us\n"
                                "I/O thread io1"));
  const Json of_queue = ParsedJson()["io_threads"][0]["signals"][0];
  EXPECT_EQ(of_queue["queue"], 0);
  EXPECT_EQ(of_queue["reaction_ns"], 12'000);
  EXPECT_EQ(of_queue["silence_ns"], 24'000);
  ASSERT_EQ(of_queue["lessons"].size(), 3u) << "of what is known";
  const Json& lesson = of_queue["lessons"][1];
  EXPECT_EQ(lesson["requests"], 16);
  EXPECT_EQ(lesson["share"], 0.25);
  ASSERT_EQ(lesson["measured"].size(), 3u);
  EXPECT_EQ(lesson["measured"][1]["share"], 0.5);
  EXPECT_NEAR(lesson["measured"][1]["requests_per_second"].get<double>(), 500'000, 1);
}

TEST_F(PollReportTest, ALongHistogramStillFitsAScreen) {
  std::vector<WaitExplanation::Bucket>& histogram = cost().of(Waiting::kIdle).histogram;
  histogram.clear();
  for (int i = 0; i < 87; ++i) {
    histogram.push_back({.from_ns = i * 1000, .to_ns = (i + 1) * 1000, .weight = 1});
  }
  const std::string text = Text();
  EXPECT_EQ(std::ranges::count(text, '|'), 22);
  EXPECT_THAT(text, HasSubstr("           0 to     4us   4.6% |#####"));
  EXPECT_THAT(text, HasSubstr("        84us to    87us   3.4% |#####"));
}

TEST_F(PollReportTest, WithoutALookThereIsNoMark) {
  cost().of(Waiting::kIdle).plan = {};
  EXPECT_THAT(Text(), Not(HasSubstr("ends\n")));
  cost().of(Waiting::kIdle).plan = {.spin_ns = kForever};
  EXPECT_THAT(Text(), Not(HasSubstr("ends\n")));
}

TEST_F(PollReportTest, TellsProgramsTheSame) {
  const Json thread = ParsedJson()["io_threads"][0];
  EXPECT_EQ(thread["id"], "io0");
  EXPECT_EQ(thread["poll"], Json::parse(R"({"kind":"cost","price":2.0,"cpu_max_share":0.2})"));
  EXPECT_EQ(thread["sleep_cost"], Json::parse(R"({"cpu_ns":1900,"wake_ns":4123,"kick_ns":9000})"));
  EXPECT_EQ(thread["spin_hits"], 900);
  EXPECT_EQ(thread["spin_misses"], 100);
  EXPECT_EQ(thread["dozes"], 20);
  EXPECT_EQ(thread["doze_ends"], 15);
  EXPECT_EQ(thread["sleeps"], 334);
  EXPECT_EQ(thread["spin_preemptions"], 3);
  const Json& idle = thread["idle"];
  EXPECT_EQ(idle["plan"], Json::parse(R"({"doze_ns":45600,"spin_ns":12345})"));
  EXPECT_EQ(idle["waits"], Json::parse(R"({"policy":700,"guard":12,"preempted":7,"ceiling":5,)"
                                       R"("learning":3})"));
  EXPECT_EQ(idle["candidates"][0],
            Json::parse(R"({"name":"plain","plan":{"doze_ns":0,"spin_ns":9000},)"
                        R"("cost_ns":123456.0})"));
  EXPECT_EQ(idle["regret_ns"], -1500);
  EXPECT_EQ(idle["regret_budget_ns"], 300'000);
  ASSERT_EQ(idle["histogram"].size(), 4u);
  EXPECT_EQ(idle["histogram"][1], Json::parse(R"({"from_ns":32000,"to_ns":45000,"weight":20.5})"));
  EXPECT_EQ(idle["histogram"][3]["to_ns"], nullptr);
  EXPECT_EQ(thread["in_flight"]["histogram"], Json::array());
  const Json& queue = thread["queues"][0];
  EXPECT_EQ(queue["queue"], 0);
  EXPECT_EQ(queue["requests"], 500);
  EXPECT_EQ(queue["batches"], 400);
  EXPECT_EQ(queue["kicks"], 100);
  EXPECT_EQ(queue["share_found_by_polling"], 0.75);
  EXPECT_EQ(ParsedJson()["io_threads"][1]["in_flight"]["plan"]["spin_ns"], nullptr);
  EXPECT_EQ(ParsedJson()["io_threads"][1]["queues"][0]["queue"], 1);
}

}  // namespace
}  // namespace ringside
