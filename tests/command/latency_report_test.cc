// The latency trace's file, and what a report makes of it.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "command/latency_file.h"
#include "command/latency_summary.h"
#include "tests/support/directories.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Stages of 100, 200, `storage_ns`, 300 and 400 ns.
LatencyRecord Record(RequestKind kind, int64_t storage_ns, bool raised = true) {
  const int64_t completed_ns = 1300 + storage_ns;
  return {.kind = kind,
          .bytes = 4096,
          .at_ns = {1000, 1100, 1300, completed_ns, completed_ns + 300,
                    raised ? completed_ns + 700 : 0}};
}

// A thousand reads whose storage takes 1 us to 1000 us, and three flushes.
std::vector<QueueLatencies> HandMade() {
  QueueLatencies queue = {.device = "disk0", .path = "a.img", .queue = 1, .overwritten = 7};
  for (int64_t us = 1000; us > 0; --us) {
    queue.records.push_back(Record(RequestKind::kRead, us * 1000, us % 2 == 0));
  }
  for (const int64_t ns : {3000, 1000, 2000}) {
    queue.records.push_back(Record(RequestKind::kFlush, ns));
  }
  return {{.device = "disk0", .path = "a.img", .queue = 0}, queue};
}

std::string Text(const std::vector<QueueLatencies>& queues) {
  std::ostringstream text;
  WriteLatencies(queues, text);
  return text.str();
}

class LatencyFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<QueueLatencies>> Read(const std::string& content) const {
    const std::string path = directory_ / "trace";
    std::ofstream(path) << content;
    return ReadLatencies(path);
  }
  void ExpectRefused(const std::string& content, const std::string& says) const {
    SCOPED_TRACE(content.substr(0, 300));
    const auto queues = Read(content);
    ASSERT_FALSE(queues.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(queues.status()));
    EXPECT_THAT(std::string(Message(queues.status())), HasSubstr(says));
    EXPECT_THAT(std::string(Message(queues.status())), Not(HasSubstr("\n")));
  }

  const testing::TempDirectory directory_;
};

// ---- The file ----

TEST_F(LatencyFileTest, IsLinesOfJson) {
  EXPECT_EQ(Text({{.device = "disk0",
                   .path = "a\"b",
                   .queue = 2,
                   .overwritten = 5,
                   .records = {Record(RequestKind::kRead, 1000),
                               Record(RequestKind::kOther, 0, /*raised=*/false)}}}),
            R"({"format":"ringside latency trace","version":2,"queues":1,"records":2,)"
            R"("columns":["queue","kind","bytes","seen","taken","submitted","completed",)"
            R"("published","interrupt"]})"
            "\n"
            R"({"device":"disk0","path":"a\"b","queue":2,"records":2,"overwritten":5})"
            "\n"
            R"([0,"read",4096,1000,1100,1300,2300,2600,3000])"
            "\n"
            R"([0,"other",4096,1000,1100,1300,1300,1600,0])"
            "\n");
}

TEST_F(LatencyFileTest, ReadsWhatWasWritten) {
  const std::vector<QueueLatencies> written = HandMade();
  const auto read = Read(Text(written));
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(Text(*read), Text(written));
  EXPECT_TRUE(Read(Text({})).ok()) << "a machine without requests";
}

TEST_F(LatencyFileTest, EveryTruncationIsRefused) {
  QueueLatencies queue = {.device = "disk0", .path = "a.img"};
  queue.records = {Record(RequestKind::kRead, 1000), Record(RequestKind::kWrite, 2000)};
  const std::string whole = Text({queue});
  for (size_t size = 0; size < whole.size(); ++size) {
    ExpectRefused(whole.substr(0, size),
                  size <= whole.find('\n') ? "is no latency trace" : "is damaged or truncated");
  }
  ExpectRefused(whole + "[]\n", "is damaged or truncated at line 4");
}

TEST_F(LatencyFileTest, GarbageIsRefused) {
  for (const char* content : {"", "\n", "ELF\x7f", "{}", "{}\n", "[]\n", "null\n", "[[[[[[\n"}) {
    ExpectRefused(content, "is no latency trace; give a file that --trace-latency wrote");
  }
  ExpectRefused(std::string(1 << 20, '\0'), "is no latency trace");
  ExpectRefused(std::string(1 << 20, '['), "is no latency trace");
  EXPECT_THAT(std::string(Message(ReadLatencies("/nonexistent").status())),
              HasSubstr("cannot open '/nonexistent': No such file or directory"));
  EXPECT_FALSE(ReadLatencies(directory_ / "").ok()) << "a directory";
  EXPECT_FALSE(ReadLatencies("/dev/zero").ok());
}

TEST_F(LatencyFileTest, ValuesThatCannotBeAreRefused) {
  constexpr char kHeader[] =
      "{\"format\":\"ringside latency trace\",\"version\":%s,\"queues\":%s,\"records\":%s}\n";
  constexpr char kQueue[] =
      "{\"device\":\"disk0\",\"path\":\"a\",\"queue\":0,\"records\":1,\"overwritten\":0}\n";
  const std::string one = absl::StrFormat(kHeader, "2", "1", "1") + kQueue;
  ASSERT_TRUE(Read(one + "[0,\"read\",1,2,3,4,5,6,7]\n").ok());
  ExpectRefused(absl::StrFormat(kHeader, "1", "0", "0"), "another version; this ringside reads");
  for (const char* count : {"-1", "1e9", "\"1\"", "null", "18446744073709551615", "2"}) {
    ExpectRefused(absl::StrFormat(kHeader, "2", count, "1") + kQueue, "is damaged");
    ExpectRefused(absl::StrFormat(kHeader, "2", "1", count) + kQueue, "is damaged");
  }
  // A count alone must not make it allocate or loop.
  ExpectRefused(absl::StrFormat(kHeader, "2", "1", "9223372036854775807") + kQueue, "at line 3");
  ExpectRefused(absl::StrFormat(kHeader, "2", "9223372036854775807", "1"), "at line 2");
  for (const char* queue :
       {"[]", "{}", "{\"device\":0,\"path\":\"a\",\"queue\":0,\"overwritten\":0}",
        "{\"device\":\"d\",\"path\":\"a\",\"queue\":65536,\"overwritten\":0}"}) {
    ExpectRefused(absl::StrFormat(kHeader, "2", "1", "0") + queue + "\n", "at line 2");
  }
  for (const char* record :
       {"[]", "{}", "7", "[1,\"read\",1,2,3,4,5,6,7]", "[-1,\"read\",1,2,3,4,5,6,7]",
        "[0,\"raed\",1,2,3,4,5,6,7]", "[0,0,1,2,3,4,5,6,7]", "[0,\"read\",1,2,3,4,5,6]",
        "[0,\"read\",1,2,3,4,5,6,7,8]", "[0,\"read\",1,2,3,4.5,5,6,7]",
        "[0,\"read\",1,2,3,-4,5,6,7]", "[0,\"read\",1,2,3,9223372036854775808,5,6,7]",
        "[0,\"read\",1,2,3,[4],5,6,7]", "[0,\"read\",1,2,3,4,5,6,7"}) {
    ExpectRefused(one + record + "\n", "at line 3");
  }
}

// ---- The summary ----

TEST(LatencySummaryTest, HasTheNumbersOfTheHandMadeTrace) {
  const LatencyReport report = Summarize(HandMade());
  ASSERT_EQ(report.summaries.size(), 2u) << "a queue without records has none";
  EXPECT_EQ(report.overwritten, 7u);
  EXPECT_EQ(report.unordered, 0u);
  const LatencySummary& reads = report.summaries[0];
  EXPECT_EQ(reads.kind, RequestKind::kRead);
  EXPECT_EQ(reads.device, "disk0");
  EXPECT_EQ(reads.queue, 1);
  EXPECT_EQ(reads.bytes, 4096u * 1000);
  EXPECT_EQ(reads.interrupts_suppressed, 500u);

  const LatencyDistribution& storage = reads.stages[2];
  EXPECT_EQ(storage.count, 1000u);
  EXPECT_EQ(storage.p50, 500'000);
  EXPECT_EQ(storage.p90, 900'000);
  EXPECT_EQ(storage.p99, 990'000);
  EXPECT_EQ(storage.p999, 999'000);
  EXPECT_EQ(storage.max, 1'000'000);
  // Of 500.5 us of storage and 0.6 us around it, and in every other request 0.4 us of interrupt.
  EXPECT_NEAR(storage.share, 500.5 / 501.3, 1e-9);
  EXPECT_EQ(reads.stages[0].p50, 100);
  EXPECT_EQ(reads.stages[1].max, 200);
  EXPECT_EQ(reads.stages[3].p999, 300);
  EXPECT_EQ(reads.stages[4].count, 500u) << "of the interrupts there were";
  EXPECT_EQ(reads.stages[4].p50, 400);
  EXPECT_EQ(reads.total.p50, 501'000) << "500 us and an interrupt";
  EXPECT_EQ(reads.total.max, 1'001'000);
  EXPECT_NEAR(reads.total.share, 1, 1e-9);

  // The mean of 5 to either side.
  const LatencyProfile& median = reads.profiles[0];
  EXPECT_STREQ(median.name, "p50");
  EXPECT_NEAR(median.stages_ns[2], 500'000, 0.1);
  EXPECT_NEAR(median.stages_ns[4], 400 * 5 / 11.0, 0.1) << "495 to 505 us";
  EXPECT_NEAR(median.total_ns, 500'600 + median.stages_ns[4], 0.1);
  EXPECT_NEAR(reads.profiles[2].stages_ns[2], 990'000, 0.1);

  const LatencySummary& flushes = report.summaries[1];
  EXPECT_EQ(flushes.kind, RequestKind::kFlush);
  EXPECT_EQ(flushes.total.p50, 3000);
  EXPECT_EQ(flushes.total.p90, 4000);
  EXPECT_NEAR(flushes.profiles[0].total_ns, 3000, 0.1);
}

TEST(LatencySummaryTest, LeavesOutStampsThatRunBackwards) {
  LatencyRecord completed_before_submitted = Record(RequestKind::kRead, -50);
  LatencyRecord raised_before_published = Record(RequestKind::kRead, 50);
  raised_before_published.at_ns.back() = 1;
  LatencyRecord extreme = Record(RequestKind::kRead, 0);
  extreme.at_ns = {0, 0, 0, INT64_MAX, INT64_MAX, INT64_MAX};
  QueueLatencies queue = {.device = "disk0"};
  queue.records = {completed_before_submitted, raised_before_published, extreme, extreme};
  const LatencyReport report = Summarize({queue});
  EXPECT_EQ(report.unordered, 2u);
  ASSERT_EQ(report.summaries.size(), 1u);
  EXPECT_EQ(report.summaries[0].total.count, 2u);
  EXPECT_EQ(report.summaries[0].total.max, INT64_MAX);
  EXPECT_NEAR(report.summaries[0].stages[2].share, 1, 1e-9);
  EXPECT_THAT(LatencyTable(report), HasSubstr("2 records are left out"));
}

// ---- What is shown ----

TEST(LatencyTextTest, ATableAndBars) {
  QueueLatencies queue = {.device = "disk0", .path = "a.img", .overwritten = 9};
  for (int i = 0; i < 10; ++i) queue.records.push_back(Record(RequestKind::kWrite, 5000));
  EXPECT_EQ(LatencyTable(Summarize({queue})),
            R"(disk0 (a.img) queue 0, write: 10 requests, 40K, 0 without interrupt
  us                             p50       p90       p99     p99.9        max   share
  t seen->taken                 0.10      0.10      0.10      0.10       0.10    1.7%
  s taken->submitted            0.20      0.20      0.20      0.20       0.20    3.3%
  # submitted->completed        5.00      5.00      5.00      5.00       5.00   83.3%
  p completed->published        0.30      0.30      0.30      0.30       0.30    5.0%
  i published->interrupt        0.40      0.40      0.40      0.40       0.40    6.7%
    all                         6.00      6.00      6.00      6.00       6.00  100.0%
  around p50       6.00 us |tss##################################################pppiiii
  around p90       6.00 us |tss##################################################pppiiii
  around p99       6.00 us |tss##################################################pppiiii

9 older requests are not in the trace, which keeps the newest
)");
  EXPECT_EQ(LatencyTable({}), "no request was recorded\n");
}

TEST(LatencyTextTest, JsonHasEverything) {
  const nlohmann::json json = nlohmann::json::parse(LatencyJson(Summarize(HandMade())));
  EXPECT_EQ(json["overwritten"], 7);
  EXPECT_EQ(json["unordered"], 0);
  const nlohmann::json& reads = json["queues"][0];
  EXPECT_EQ(reads["device"], "disk0");
  EXPECT_EQ(reads["path"], "a.img");
  EXPECT_EQ(reads["queue"], 1);
  EXPECT_EQ(reads["kind"], "read");
  EXPECT_EQ(reads["interrupts_suppressed"], 500);
  EXPECT_EQ(reads["stages"]["submitted->completed"]["p99_ns"], 990'000);
  EXPECT_EQ(reads["total"]["count"], 1000);
  EXPECT_EQ(reads["profiles_ns"]["p90"]["seen->taken"], 100);
  EXPECT_TRUE(nlohmann::json::parse(LatencyJson({}))["queues"].empty());
}

TEST(LatencyTextTest, ThePictureIsToScale) {
  const std::string svg = LatencySvg(
      Summarize({{.device = "<d&>", .path = "", .records = {Record(RequestKind::kRead, 5200)}}}));
  EXPECT_THAT(svg, HasSubstr("&#60;d&#38;&#62; queue 0, read"));
  // 5200 of 6200 ns on 620 pixels, behind 230.
  EXPECT_THAT(svg, HasSubstr("<rect x=\"260.0\" y=\"73.0\" width=\"520.0\""));
  EXPECT_THAT(svg, HasSubstr(">6.20</text>"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(LatencySvg({}), ::testing::StartsWith("<svg "));
}

TEST(LatencyTextTest, NamesFromAFileGiveATerminalNoOrders) {
  const LatencyReport report = Summarize(
      {{.device = "d\x1b[2J", .path = "\xc2\x9b", .records = {Record(RequestKind::kRead, 1)}}});
  EXPECT_THAT(LatencyTable(report), ::testing::StartsWith("d\\x1b[2J (\\xc2\\x9b) queue 0"));
  EXPECT_THAT(LatencySvg(report), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace ringside
