// The metrics of made-up statistics, read back.
#include "vmm/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/vmm/metrics_parser.h"
#include "vmm/metric_table.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ParsedMetrics;
using testing::ParseMetrics;

constexpr const char* kHostile = "a\"b\\c\nd\xff{}\x1b[2J,e=\"\\n";

// Something of each, under names that mean ill.
MachineStatistics Everything(const std::string& name) {
  QueueStatistics queue = {.io_thread = name, .reads = 3, .writes = 2, .bytes_read = 4096};
  LatencyHistogram reads = {.kind = RequestKind::kRead, .sum_ns = 1'234'567'890'123};
  for (size_t i = 0; i < kLatencyBuckets; ++i) reads.counts[i] = i;
  queue.latencies = {reads, {.kind = RequestKind::kFlush, .counts = {1}, .sum_ns = 1}};
  MachineStatistics statistics;
  statistics.console = {.written = 1, .waiting = 2, .dropped = 3};
  statistics.disks = {{.id = name,
                       .path = name + "x",
                       .cache = name,
                       .engine = name,
                       .counters = {{name, 1}, {"\x01", 2}, {"\\x01", 4}},
                       .queues = {queue, queue}}};
  statistics.devices = {{.id = "rng", .queues = {{.io_thread = "io"}}}};
  statistics.assigned = {{.id = "vfio0", .address = name, .vectors = 1, .register_exits = 5}};
  statistics.io_threads = {{.id = name, .waiter = "epoll", .signal = "early", .cpus = {1, 2}},
                           {.id = "second", .spin_limit_ns = INT64_MAX}};
  statistics.vcpus = {
      {.exits = {{"io", 7}, {"other", 1}, {"other", 2}}, .kernel_exits = {{"exits", 9}}}, {}};
  return statistics;
}

ParsedMetrics Parsed(const MachineStatistics& statistics, const std::string& machine = "") {
  const ParsedMetrics metrics = ParseMetrics(
      MetricsText({.statistics = statistics, .process = {.cpu_seconds = 0.1}, .machine = machine}));
  EXPECT_THAT(metrics.problems, IsEmpty());
  return metrics;
}

TEST(Metrics, HeldInterruptsAreCountedByWhatMadeThemDue) {
  MachineStatistics statistics;
  QueueStatistics queue = {.interrupts = 5};
  queue.signals = {.raised = {3, 2}, .held = 7, .held_ns = 1'500'000'000, .dropped = 1};
  statistics.disks = {{.id = "a", .queues = {queue}}};
  const ParsedMetrics metrics = Parsed(statistics);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_total"), 5);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_by_reason_total", {{"reason", "dry"}}), 3);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_by_reason_total"), 5);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_held_total"), 7);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_held_seconds_total"), 1.5);
  EXPECT_EQ(metrics.Sum("ringside_interrupts_dropped_total"), 1);
}

TEST(Metrics, WhateverNamesMeanTheTextIsWellFormed) {
  for (const std::string name : {"disk0", "", "\xc3\xa4", kHostile, "\\", "\"", "\n", "\\x0a"}) {
    SCOPED_TRACE(name);
    const ParsedMetrics metrics = Parsed(Everything(name), name);
    EXPECT_EQ(metrics.Sum("ringside_requests_total", {{"kind", "read"}}), 6);
    EXPECT_EQ(metrics.Sum("ringside_disk_backend_events_total"), 7);
  }
}

TEST(Metrics, ANameIsReadBackAsItIs) {
  const ParsedMetrics metrics = Parsed(Everything("a\"b\\c"), "\xc3\xa4\\");
  const std::map<std::string, std::string> labels = {
      {"machine", "\xc3\xa4\\"}, {"device", "a\"b\\c"}, {"path", "a\"b\\cx"}};
  EXPECT_EQ(metrics.Sum("ringside_disk_info", labels), 1);
}

TEST(Metrics, EachSampleHasTheMachine) {
  const ParsedMetrics metrics = Parsed(Everything("a"), "vm1");
  for (const testing::MetricSample& sample : metrics.samples) {
    EXPECT_EQ(sample.labels.count("machine"), 1u) << sample.name;
  }
  for (const testing::MetricSample& sample : Parsed(Everything("a")).samples) {
    EXPECT_EQ(sample.labels.count("machine"), 0u) << sample.name;
  }
}

TEST(Metrics, AMachineOfNothingHasFamiliesAndNoQueues) {
  const ParsedMetrics metrics = Parsed({});
  EXPECT_EQ(metrics.types.size(), Metrics().size());
  EXPECT_EQ(metrics.Sum("ringside_machine_state", {{"state", "running"}}), 1);
  EXPECT_EQ(metrics.Sum("ringside_machine_state"), 1);
}

// Nothing is rounded, and a bound is written as Prometheus writes it.
TEST(Metrics, NumbersKeepTheirDigits) {
  EXPECT_EQ(MetricNumber(uint64_t{UINT64_MAX}), "18446744073709551615");
  EXPECT_EQ(MetricSeconds(0), "0");
  EXPECT_EQ(MetricSeconds(1), "0.000000001");
  EXPECT_EQ(MetricSeconds(1'500'000'000), "1.5");
  EXPECT_EQ(MetricSeconds(20'000'000'000), "20");
  EXPECT_EQ(MetricSeconds(UINT64_MAX), "18446744073.709551615");
  EXPECT_EQ(std::stod(MetricNumber(0.1 + 0.2)), 0.1 + 0.2);
  EXPECT_EQ(MetricNumber(std::numeric_limits<double>::infinity()), "+Inf");
  const MachineStatistics statistics = Everything("d");
  const std::string text = MetricsText({.statistics = statistics});
  EXPECT_THAT(text, HasSubstr("_bucket{device=\"d\",queue=\"0\",kind=\"read\",le=\"1e-06\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("kind=\"read\",le=\"0.0002\"} 28\n"));
  EXPECT_THAT(text, HasSubstr("kind=\"read\",le=\"10\"} 231\n"));
  EXPECT_THAT(text, HasSubstr("kind=\"read\",le=\"+Inf\"} 253\n"));
  EXPECT_THAT(text, HasSubstr("_sum{device=\"d\",queue=\"0\",kind=\"read\"} 1234.567890123\n"));
  EXPECT_THAT(text, HasSubstr("poll_limit_seconds{io_thread=\"second\"} +Inf\n"));
}

// ---- The reader itself ----

TEST(MetricsParser, FindsWhatIsWrong) {
  const std::string counter = "# HELP a_total x\n# TYPE a_total counter\n";
  const std::string histogram = "# HELP h x\n# TYPE h histogram\n";
  for (const std::string& text :
       {std::string("a_total 1\n"), counter + "a_total 1", counter + "a_total -1\n",
        counter + "a_total x\n", counter + "b_total 1\n", counter + "a_total 1\na_total 2\n",
        counter + "a_total{a=\"\\x\"} 1\n", counter + "a_total{a=\"1\",a=\"2\"} 1\n",
        counter + "a_total{a=\"\xff\"} 1\n", counter + "a_total{1=\"\"} 1\n", counter + counter,
        counter + "\n", std::string("# HELP a x\n# TYPE a counter\n"),
        histogram + "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        histogram + "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\n"}) {
    EXPECT_FALSE(ParseMetrics(text).problems.empty()) << text;
  }
  EXPECT_THAT(ParseMetrics(counter + "a_total{a=\"\\\\\\\"\\n\"} 1e+06\n" + histogram +
                           "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n")
                  .problems,
              IsEmpty());
}

}  // namespace
}  // namespace ringside
