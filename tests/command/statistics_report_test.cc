// What --stats prints, for people and for programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command/statistics_report.h"
#include "vmm/poll_settings.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MachineStatistics TwoThreads() {
  MachineStatistics statistics;
  statistics.disks = {{.id = "root", .path = "disk", .queues = {{.io_thread = "b"}}}};
  statistics.io_threads = {{.id = "a", .waiter = "epoll", .signal = "early"},
                           {.id = "b",
                            .waiter = "io_uring",
                            .poll = {.kind = PollKind::kGrowShrink, .max_ns = 50'000, .shrink = 3},
                            .signal = "batched",
                            .cpus = {0, 3},
                            .dozes = 7,
                            .doze_ends = 5,
                            .preempted = 3,
                            .kick_ns = 8000,
                            .sleep_cpu_ns = 1900}};
  return statistics;
}

TEST(StatisticsReportTest, TheTableTellsThreadsAndTheirSettings) {
  const std::string table = StatisticsTable(TwoThreads());
  EXPECT_THAT(table, ::testing::ContainsRegex("queue 0 +b "));
  EXPECT_THAT(table, HasSubstr("I/O thread a (epoll, poll=never,signal=early): "));
  EXPECT_THAT(table, HasSubstr("I/O thread b (io_uring, poll=grow-shrink,max=50us,grow=2,shrink=3,"
                               "signal=batched,cpu=0+3): "));
  EXPECT_THAT(table, HasSubstr(", 3 preempted), 7 dozes (5 to their end), "));
}

TEST(StatisticsReportTest, ThePathOfADiskCannotWriteALineOfItsOwn) {
  MachineStatistics statistics;
  statistics.disks = {{.path = "a\nI/O thread\x1b[A", .engine = "io_uring"}};
  EXPECT_THAT(StatisticsTable(statistics), HasSubstr("disk a\\x0aI/O thread\\x1b[A: cache="));
}

TEST(StatisticsReportTest, TheConsoleTellsWhatBecameOfItsBytes) {
  MachineStatistics statistics;
  statistics.console = {.written = 1, .waiting = 2, .dropped = 3};
  EXPECT_THAT(StatisticsTable(statistics),
              HasSubstr("console: 1 bytes written, 2 waiting for their reader, 3 dropped\n"));
  const nlohmann::json json = nlohmann::json::parse(StatisticsJsonText(statistics));
  EXPECT_EQ(json["console"],
            nlohmann::json::parse(R"({"bytes_written":1,"bytes_waiting":2,"bytes_dropped":3})"));
}

TEST(StatisticsReportTest, TheTableTellsOfKeptRequestsWhereThereAreSome) {
  MachineStatistics statistics = TwoThreads();
  EXPECT_THAT(StatisticsTable(statistics), Not(HasSubstr("wait for")));
  statistics.disks[0].queues[0].kept = 3;
  EXPECT_THAT(StatisticsTable(statistics),
              HasSubstr("    3 requests that failed wait for the machine to be resumed\n"));
}

TEST(StatisticsReportTest, TheJsonTellsThemToo) {
  const nlohmann::json json = nlohmann::json::parse(StatisticsJsonText(TwoThreads()));
  EXPECT_EQ(json["disks"][0]["queues"][0]["io_thread"], "b");
  const nlohmann::json& thread = json["io_threads"][1];
  EXPECT_EQ(json["disks"][0]["id"], "root");
  EXPECT_EQ(thread["id"], "b");
  EXPECT_EQ(thread["poll"],
            nlohmann::json::parse(R"({"kind":"grow-shrink","max_ns":50000,"grow":2,"shrink":3})"));
  EXPECT_EQ(thread["signal"], "batched");
  EXPECT_EQ(thread["cpus"], nlohmann::json::parse("[0,3]"));
  EXPECT_EQ(thread["dozes"], 7);
  EXPECT_EQ(thread["doze_ends"], 5);
  EXPECT_EQ(thread["spin_preemptions"], 3);
  EXPECT_EQ(thread["kick_ns"], 8000);
  EXPECT_EQ(thread["sleep_cpu_ns"], 1900);
}

TEST(StatisticsReportTest, InterruptsThatWereHeldAreToldOf) {
  MachineStatistics statistics = TwoThreads();
  QueueStatistics& queue = statistics.disks[0].queues[0];
  queue.reads = 1000;
  queue.interrupts = 80;
  queue.signals.raised[static_cast<size_t>(SignalReason::kDry)] = 80;
  EXPECT_THAT(StatisticsTable(statistics), Not(HasSubstr("held")));
  queue.signals.held = 4;
  queue.signals.held_ns = 10'000;
  queue.signals.dropped = 1;
  EXPECT_THAT(StatisticsTable(statistics),
              HasSubstr("    interrupts: 80, one for 12.5 requests\n"
                        "    held: 4, for 2.5us on average, 10us in all; not needed then: 1\n"));
  const nlohmann::json json =
      nlohmann::json::parse(StatisticsJsonText(statistics))["disks"][0]["queues"][0];
  EXPECT_EQ(json["requests_per_interrupt"], 12.5);
  EXPECT_EQ(json["signals"]["raised"]["dry"], 80);
  EXPECT_EQ(json["signals"]["held"], 4);
  EXPECT_EQ(json["signals"]["held_ns"], 10'000);
  EXPECT_EQ(json["signals"]["dropped"], 1);
}

TEST(StatisticsReportTest, TheJsonHasTheLatenciesOfWhatWasTraced) {
  MachineStatistics statistics;
  LatencyHistogram writes = {.kind = RequestKind::kWrite, .sum_ns = 123};
  writes.counts[0] = 2;
  writes.counts.back() = 1;
  statistics.disks = {{.queues = {{.latencies = {writes}}, {}}}};
  const nlohmann::json json = nlohmann::json::parse(StatisticsJsonText(statistics));
  EXPECT_EQ(json["disks"][0]["queues"][0]["latencies"], nlohmann::json::parse(R"({"write":
      {"count":3,"sum_ns":123,"buckets":[{"to_ns":1000,"count":2},{"to_ns":null,"count":1}]}})"));
  EXPECT_FALSE(json["disks"][0]["queues"][1].contains("latencies"));
}

// A counter of a backend needs no word in the reports.
TEST(StatisticsReportTest, ADiskTellsWhateverItsBackendCounts) {
  MachineStatistics statistics;
  statistics.disks = {
      {.path = "nvme://0000:00:04.0/1",
       .cache = "none",
       .engine = "nvme",
       .counters = {{"commands", 11}, {"splits", 0}, {"never_heard_of", 20}, {"outer.reads", 7}}},
      {.path = "file", .cache = "writeback"}};
  const std::string table = StatisticsTable(statistics);
  EXPECT_THAT(table, HasSubstr("disk nvme://0000:00:04.0/1: cache=none aio=nvme, 11 commands, "
                               "20 never heard of, 7 outer.reads\n"));
  EXPECT_THAT(table, HasSubstr("disk file: cache=writeback aio=unused\n"));
  const nlohmann::json json = nlohmann::json::parse(StatisticsJsonText(statistics));
  EXPECT_EQ(
      json["disks"][0]["counters"],
      nlohmann::json::parse(R"({"commands":11,"splits":0,"never_heard_of":20,"outer.reads":7})"));
  EXPECT_EQ(json["disks"][1]["counters"], nlohmann::json::object());
}

TEST(PollSettingsTest, AreThoseThatTheKindLooksAt) {
  const auto settings = [](PollKind kind) {
    const PollConfig poll = {.kind = kind,
                             .max_ns = 20'000,
                             .grow = 3,
                             .shrink = 4,
                             .weight = 5,
                             .price = 0.5,
                             .cpu_max = 0.2};
    return PollText(poll) + ' ' + PollJson(poll).dump();
  };
  EXPECT_EQ(settings(PollKind::kNever), R"(poll=never {"kind":"never"})");
  EXPECT_EQ(settings(PollKind::kAlways), R"(poll=always {"kind":"always"})");
  EXPECT_EQ(settings(PollKind::kFixed), R"(poll=fixed,max=20us {"kind":"fixed","max_ns":20000})");
  EXPECT_EQ(settings(PollKind::kGrowShrink),
            "poll=grow-shrink,max=20us,grow=3,shrink=4 "
            R"({"kind":"grow-shrink","max_ns":20000,"grow":3,"shrink":4})");
  EXPECT_EQ(settings(PollKind::kWeighted),
            "poll=weighted,max=20us,grow=3,shrink=4,weight=5 "
            R"({"kind":"weighted","max_ns":20000,"grow":3,"shrink":4,"weight":5})");
  EXPECT_EQ(settings(PollKind::kCost),
            R"(poll=cost,price=0.5,cpu-max=20% {"kind":"cost","price":0.5,"cpu_max_share":0.2})");
}

}  // namespace
}  // namespace ringside
