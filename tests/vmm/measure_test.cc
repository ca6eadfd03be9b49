// The measuring jobs of the bare-metal guest: first their arithmetic, which runs anywhere, then
// whole machines. A figure is worth what these tests are worth.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/guest/arrivals.h"
#include "tests/guest/histogram.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;

// ---- Histogram ----

TEST(HistogramTest, QuantilesAreThoseOfTheValuesToAThirtySecond) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> distribution(10, 2);
  std::vector<uint64_t> values(100000);
  guest::Histogram histogram;
  for (uint64_t& value : values) {
    value = static_cast<uint64_t>(distribution(random));
    histogram.Add(value);
  }
  std::ranges::sort(values);
  for (const uint64_t parts : {1u, 100u, 500u, 900u, 990u, 999u, 1000u}) {
    const auto exact = static_cast<double>(values[values.size() * parts / 1000 - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(parts, 1000)), exact, exact / 32 + 1)
        << parts;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.total(), values.size());
}

TEST(HistogramTest, EveryValueIsInItsBucket) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t value = random() >> (random() % 64);
    const size_t bucket = guest::Histogram::BucketOf(value);
    ASSERT_LE(guest::Histogram::Lower(bucket), value);
    if (bucket + 1 < guest::Histogram::kBuckets) {
      ASSERT_GT(guest::Histogram::Lower(bucket + 1), value);
    }
  }
}

TEST(HistogramTest, MergesAsIfAllHadBeenAddedToOne) {
  guest::Histogram a, b, both;
  for (uint64_t value = 1; value < 5000; value += 3) {
    (value % 2 == 0 ? a : b).Add(value);
    both.Add(value);
  }
  a.Merge(b);
  EXPECT_EQ(a.total(), both.total());
  EXPECT_EQ(a.mean(), both.mean());
  EXPECT_EQ(a.min(), both.min());
  EXPECT_EQ(a.max(), both.max());
  EXPECT_EQ(a.Quantile(1, 2), both.Quantile(1, 2));
}

TEST(HistogramTest, AnEmptyOneIsAllZero) {
  const guest::Histogram empty;
  EXPECT_EQ(empty.min(), 0u);
  EXPECT_EQ(empty.mean(), 0u);
  EXPECT_EQ(empty.Quantile(1, 2), 0u);
}

// ---- Arrivals ----

TEST(ArrivalsTest, PeriodicOnesKeepTheRateToAFractionOfATick) {
  // 10.5 ticks apart.
  guest::Arrivals arrivals(guest::ArrivalKind::kPeriodic, 10 * 256 + 128, 1000, 1);
  EXPECT_EQ(arrivals.next(), 1000u);
  for (int i = 0; i < 2000; ++i) arrivals.Advance();
  EXPECT_EQ(arrivals.next(), 1000u + 21000);
}

// The mean and the standard deviation of an exponential distribution are the same.
TEST(ArrivalsTest, PoissonOnesAreExponentiallyApart) {
  constexpr int kCount = 200000;
  constexpr double kMean = 5000;
  guest::Arrivals arrivals(guest::ArrivalKind::kPoisson, 5000 * 256, 0, 3);
  double sum = 0, squares = 0;
  int above_mean = 0;
  uint64_t before = 0;
  for (int i = 0; i < kCount; ++i) {
    arrivals.Advance();
    const auto interval = static_cast<double>(arrivals.next() - before);
    before = arrivals.next();
    sum += interval;
    squares += interval * interval;
    above_mean += interval > kMean;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, kMean, kMean * 0.01);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), kMean, kMean * 0.02);
  EXPECT_NEAR(above_mean, kCount / std::exp(1), kCount * 0.01);
}

// ---- Jobs in a machine ----

class MeasureTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = {{.backend = FileConfig{.path = image_.path()}}};
    return config;
  }

  std::vector<nlohmann::json> Jobs() const {
    std::vector<nlohmann::json> jobs;
    std::istringstream lines(console_.Output());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('{')) jobs.push_back(nlohmann::json::parse(line));
    }
    return jobs;
  }

  std::vector<nlohmann::json> RunWell(const std::string& command_line) const {
    const GuestRun run = RunGuest(Config(command_line), console_);
    EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
    EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
    return Jobs();
  }

  const TempFile image_{16 * kMiB, "."};
  TestConsole console_;
};

void ExpectSound(const nlohmann::json& job) {
  SCOPED_TRACE(job.dump());
  ASSERT_FALSE(job.contains("error"));
  EXPECT_GT(job["ios"], 0u);
  EXPECT_EQ(job["ios"], job["reads"].get<uint64_t>() + job["writes"].get<uint64_t>());
  EXPECT_EQ(job["bytes"], job["ios"].get<uint64_t>() * job["bs"].get<uint64_t>());
  EXPECT_EQ(job["errors"], 0u);
  EXPECT_EQ(job["mismatches"], 0u);
  uint64_t counted = 0;
  for (const nlohmann::json& bucket : job["histogram"]) counted += bucket[1].get<uint64_t>();
  EXPECT_EQ(counted, job["ios"]);
  const nlohmann::json& latency = job["latency_ns"];
  const char* const ascending[] = {"min", "p50", "p90", "p99", "p999", "p9999", "max"};
  for (size_t i = 0; i + 1 < std::size(ascending); ++i) {
    EXPECT_LE(latency[ascending[i]], latency[ascending[i + 1]]) << ascending[i];
  }
}

TEST_F(MeasureTest, EveryDepthOfAListIsAJob) {
  const auto jobs = RunWell("rw=randread qd=1,8,85 runtime=300ms warmup=5ms");
  ASSERT_EQ(jobs.size(), 3u);
  for (const nlohmann::json& job : jobs) ExpectSound(job);
  EXPECT_EQ(jobs[0]["qd"], 1u);
  EXPECT_EQ(jobs[2]["qd"], 85u);
  // Little's law: what is in flight is the rate times the time each takes.
  const auto& deep = jobs[2];
  const double in_flight = deep["ios"].get<double>() / deep["runtime_ns"].get<double>() *
                           deep["latency_ns"]["mean"].get<double>();
  // A host that is busy in the end takes from the time in which they are counted.
  EXPECT_GE(in_flight, 85 * 0.2);
  EXPECT_LE(in_flight, 85 * 1.5);
}

class PatternTest : public MeasureTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(PatternTest, EveryByteIsVerified) {
  const auto jobs = RunWell(std::string("rw=") + GetParam() +
                            " verify=1 size=1M bs=4k qd=1,16 runtime=200ms warmup=5ms");
  ASSERT_EQ(jobs.size(), 2u);
  for (const nlohmann::json& job : jobs) ExpectSound(job);
  const std::string name = GetParam();
  EXPECT_EQ(jobs[1]["reads"] > 0, name != "write" && name != "randwrite");
  EXPECT_EQ(jobs[1]["writes"] > 0, name != "read" && name != "randread");
}

INSTANTIATE_TEST_SUITE_P(, PatternTest,
                         ::testing::Values("randread", "randwrite", "randrw", "read", "write",
                                           "rw"));

TEST_F(MeasureTest, AnImageThatChangesUnderTheGuestIsNoticed) {
  std::atomic<bool> stop{false};
  std::thread meddler([&] {
    const std::vector<char> zeroes(kMiB);
    const UniqueFd fd(open(image_.path().c_str(), O_WRONLY | O_CLOEXEC));
    while (!stop) ASSERT_EQ(pwrite(fd.get(), zeroes.data(), kMiB, 0), static_cast<ssize_t>(kMiB));
  });
  RunGuest(Config("rw=randread verify=1 size=1M qd=4 runtime=300ms"), console_);
  stop = true;
  meddler.join();
  const auto jobs = Jobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].contains("error") || jobs[0]["mismatches"] > 0u) << jobs[0];
}

TEST_F(MeasureTest, ByInterruptEveryWaitThatSleptHadOne) {
  const auto jobs = RunWell("rw=randread qd=1 runtime=300ms wait=irq");
  ASSERT_EQ(jobs.size(), 1u);
  ExpectSound(jobs[0]);
  // A completion that was there already when the driver had asked needs none.
  EXPECT_GT(jobs[0]["interrupts"], 0u);
  EXPECT_LE(jobs[0]["interrupts"], jobs[0]["ios"].get<uint64_t>() + 1);
}

TEST_F(MeasureTest, AnOpenLoopKeepsItsRate) {
  const auto jobs = RunWell("rw=randread qd=64 runtime=400ms rate=500,1000 arrival=poisson");
  ASSERT_EQ(jobs.size(), 2u);
  for (const nlohmann::json& job : jobs) {
    ExpectSound(job);
    EXPECT_EQ(job["loop"], "open");
    const double expected = job["rate"].get<double>() * 0.4;
    // Five standard deviations of a Poisson process, and what a busy host may hold up at the end.
    EXPECT_NEAR(job["ios"].get<double>(), expected, 5 * std::sqrt(expected) + expected / 2);
  }
}

// Of a job on one queue: requests a second times their mean latency, by Little's law.
double MeanInFlight(const nlohmann::json& ios, const nlohmann::json& latency,
                    const nlohmann::json& job) {
  return ios.get<double>() / job["runtime_ns"].get<double>() * latency["mean"].get<double>();
}

// By the word that says how the guest learns of completions.
class ThinkingTest : public MeasureTest, public ::testing::WithParamInterface<const char*> {
 protected:
  nlohmann::json TheJob(const std::string& words) const {
    const auto jobs = RunWell("runtime=300ms qd=8 " + words + " wait=" + GetParam());
    if (jobs.size() != 1) {
      ADD_FAILURE() << jobs.size() << " jobs";
      return {};
    }
    ExpectSound(jobs[0]);
    return jobs[0];
  }
};

TEST_P(ThinkingTest, UsersThinkAtTheSameTime) {
  const nlohmann::json job = TheJob("rw=randread think=2ms");
  const double per_second = job["ios"].get<double>() / 0.3;
  EXPECT_GT(per_second, 600.0);  // one after the other they could do 500
  // Each of the eight waits for the disk or thinks, or for a processor.
  // One that is in flight at the beginning counts whole.
  const double edges = 8 * job["latency_ns"]["max"].get<double>() / 0.3e9;
  EXPECT_LE(MeanInFlight(job["ios"], job["latency_ns"], job) + per_second * 0.002, 8.5 + edges);
}

// What was in flight or waited at the start of the measured time may have been worked on before it.
constexpr uint64_t kMostOfOneThread = 300 / 2 + 8;

TEST_P(ThinkingTest, AProgramOfOneThreadWorksOnOneAfterTheOther) {
  EXPECT_LE(TheJob("rw=randrw verify=1 size=1M think-serial=2ms")["ios"], kMostOfOneThread);
}

TEST_P(ThinkingTest, ADepth1JobGoesFirstAndIsReportedApart) {
  const nlohmann::json job = TheJob("rw=randread depth1=1 think-serial=2ms");
  const nlohmann::json& depth1 = job["depth1"];
  EXPECT_LE(job["ios"], kMostOfOneThread);
  EXPECT_GT(depth1["ios"], 0u);
  // By interrupt its next request follows at once, also while the others are worked on.
  if (job["wait"] == "irq") {
    const double edges = depth1["latency_ns"]["max"].get<double>() / 0.3e9;
    const double mean = MeanInFlight(depth1["ios"], depth1["latency_ns"], job);
    EXPECT_GE(mean, 0.5);  // not at once: 0.1
    EXPECT_LE(mean, 1.2 + edges);
  }
}

INSTANTIATE_TEST_SUITE_P(, ThinkingTest, ::testing::Values("poll", "irq"));

TEST_F(MeasureTest, TheDeviceCountsTheRequestsOfBothJobs) {
  auto machine = Machine::Create(Config("rw=randread qd=4 runtime=300ms warmup=0ms depth1=1"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  (*machine)->Wait();
  const auto jobs = Jobs();
  ASSERT_EQ(jobs.size(), 1u);
  const MachineStatistics statistics = (*machine)->Statistics();
  // Beside the rehearsal's, those that were in flight at the start and at the end.
  EXPECT_NEAR(static_cast<double>(statistics.disks[0].queues[0].reads),
              jobs[0]["ios"].get<double>() + jobs[0]["depth1"]["ios"].get<double>(), 1 + 5 + 5);
}

TEST_F(MeasureTest, QueuesRunOnProcessorsOfTheirOwn) {
  MachineConfig config = Config("rw=randrw verify=1 size=2M qd=4 queues=2 runtime=300ms");
  config.cpus = 2;
  config.disks[0].queues = 2;
  auto machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  (*machine)->Wait();
  const auto jobs = Jobs();
  ASSERT_EQ(jobs.size(), 1u) << console_.Output();
  ExpectSound(jobs[0]);
  const MachineStatistics statistics = (*machine)->Statistics();
  for (const QueueStatistics& queue : statistics.disks[0].queues) EXPECT_GT(queue.requests(), 512u);
}

// As a queue in front of the disk would: what cannot be served piles up, and its waiting counts.
TEST_F(MeasureTest, AnOpenLoopBeyondWhatTheDiskCanDoIsLate) {
  const auto jobs = RunWell("rw=randread qd=1 runtime=200ms warmup=1ms rate=10000000");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_GT(jobs[0]["late"], 0u);
  EXPECT_GT(jobs[0]["latency_ns"]["p50"], 10'000'000u);
}

TEST_F(MeasureTest, TheDeviceCountsTheSameKicks) {
  auto machine = Machine::Create(Config("rw=randread qd=1 runtime=300ms warmup=0ms"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  (*machine)->Wait();
  const auto jobs = Jobs();
  ASSERT_EQ(jobs.size(), 1u);
  const MachineStatistics statistics = (*machine)->Statistics();
  // The job's end is not the guest's: a request and its kick may lie behind it.
  EXPECT_NEAR(static_cast<double>(statistics.disks[0].queues[0].kicks),
              jobs[0]["kicks"].get<double>(), 2);
  EXPECT_NEAR(static_cast<double>(statistics.disks[0].queues[0].reads),
              jobs[0]["ios"].get<double>(), 2);
}

TEST_F(MeasureTest, AJobThatCannotBeRunSaysWhy) {
  const GuestRun run = RunGuest(Config("rw=randread bs=1000 runtime=10ms"), console_);
  EXPECT_THAT(run.output, HasSubstr("FAIL bs"));
  EXPECT_TRUE(Jobs().empty());
}

class RefusedThinkingTest : public MeasureTest,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(RefusedThinkingTest, NamesTheWordAndRunsNoJob) {
  const GuestRun run =
      RunGuest(Config(std::string("rw=randread runtime=10ms ") + GetParam()), console_);
  EXPECT_THAT(run.output, HasSubstr("FAIL "));
  EXPECT_TRUE(Jobs().empty());
}

INSTANTIATE_TEST_SUITE_P(, RefusedThinkingTest,
                         ::testing::Values("think=1us think-serial=1us", "think=2s",
                                           "think=1us rate=10", "depth1=1 rate=10"));

TEST_F(MeasureTest, ADiskTooSmallForTheDepthSaysSo) {
  const auto jobs = RunWell("rw=randread bs=1M size=4M qd=8 runtime=10ms");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_THAT(jobs[0]["error"].get<std::string>(), HasSubstr("room"));
}

}  // namespace
}  // namespace ringside
