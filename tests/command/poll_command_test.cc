// How I/O threads wait and signal, as users of the ringside command meet it: policies,
// --poll-trace,
// --signal-trace, --explain.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/vmm/disk_command_fixture.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::kMiB;

class PollCommandTest : public testing::DiskCommandTest {
 protected:
  // What the I/O thread of a checked disk tells, once its guest is done.
  nlohmann::json ServeADisk(const std::string& poll) {
    const ProcessResult result = Run(
        {"--iothread", poll, "--disk", "path=" + MakeDisk("disk", 16 * kMiB), "--stats", "json"},
        "disk=1 end=poweroff");
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_THAT(result.output, HasSubstr("guest: disk 0 ok "));
    return nlohmann::json::parse(result.errors)["io_threads"][0];
  }
};

TEST_F(PollCommandTest, ServesADiskWhileLooking) {
  // So long a look that some request comes in time on the busiest machine.
  const nlohmann::json thread = ServeADisk("poll=weighted,max=10ms,weight=1");
  EXPECT_GT(thread["spin_hits"], 0);
  EXPECT_GT(thread["sleep_cpu_ns"], 0);
}

TEST_F(PollCommandTest, ServesADiskByWhatWaitingCosts) {
  // Whether it looks depends on the machine; that it measures what sleeping costs does not.
  const nlohmann::json thread = ServeADisk("poll=cost,price=2,cpu-max=50%");
  EXPECT_GT(thread["sleep_cpu_ns"], 0);
}

// ---- Trace of waits ----

struct TracedWait {
  std::string thread, waiting;
  int64_t start_ns = 0, waited_ns = 0;
  int slept = -1;
  uint64_t ready = 0;
};

std::vector<TracedWait> ReadWaits(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "# ringside poll trace 1");
  std::getline(file, line);
  EXPECT_EQ(line, "# thread,start_ns,waiting,waited_ns,slept,ready");
  std::vector<TracedWait> waits;
  while (std::getline(file, line)) {
    std::ranges::replace(line, ',', ' ');
    std::istringstream words(line);
    TracedWait& wait = waits.emplace_back();
    words >> wait.thread >> wait.start_ns >> wait.waiting >> wait.waited_ns >> wait.slept >>
        std::hex >> wait.ready;
    EXPECT_TRUE(words) << line;
  }
  return waits;
}

TEST_F(PollCommandTest, TracesTheWaitsOfEveryThread) {
  for (const char* poll : {"poll=always", "poll=fixed,max=0"}) {
    SCOPED_TRACE(poll);
    const bool never_sleeps = std::string(poll) == "poll=always";
    const ProcessResult run =
        Run({"--disk", "path=" + MakeDisk("disk", 16 * kMiB) + ",aio=io_uring,iothreads=b",
             "--iothread", std::string("id=b,") + poll, "--iothread", "id=idle,poll=fixed",
             "--poll-trace", Path("waits")},
            "rw=randread qd=1 runtime=300ms");
    ASSERT_EQ(run.status, 0) << run.errors;
    std::map<std::string, int> kinds;
    int64_t last_end_ns = 0, in_flight = 0, completions = 0, slept = 0;
    for (const TracedWait& wait : ReadWaits(Path("waits"))) {
      if (wait.thread != "b") {
        EXPECT_EQ(wait.thread, "idle");
        continue;
      }
      ++kinds[wait.waiting];
      EXPECT_GE(wait.start_ns, last_end_ns) << "one follows the other";
      EXPECT_GE(wait.waited_ns, 0);
      last_end_ns = wait.start_ns + wait.waited_ns;
      slept += wait.slept;
      if (wait.waiting != "in-flight") continue;
      ++in_flight;
      completions += (wait.ready & 1) != 0;
    }
    EXPECT_EQ(kinds.size(), 2u);
    EXPECT_GT(kinds["idle"], 3);
    EXPECT_GT(kinds["in-flight"], 3);
    EXPECT_GE(completions, in_flight * 9 / 10) << "that is what was waited for";
    if (never_sleeps) {
      EXPECT_EQ(slept, 0);
    } else {
      EXPECT_GT(slept, 5);
    }
  }
}

TEST_F(PollCommandTest, RefusesAPollTraceThatCannotBe) {
  const std::string disk = "path=" + MakeDisk("disk", kMiB);
  ExpectRefused({"--poll-trace", Path("waits")},
                "--poll-trace is about disks and networks, and there is none: give a --disk or "
                "a --net");
  ExpectRefused({"--disk", disk, "--poll-trace", Path("disk")},
                "--poll-trace '" + Path("disk") + "' holds something else, which would be lost");
  ExpectRefused({"--disk", disk, "--poll-trace", "/nonexistent/waits"},
                "--poll-trace cannot write '/nonexistent/waits'");
  ExpectRefused({"--disk", disk, "--poll-trace", Path("waits"), "--iothread", "id=a,poll=never"},
                "I/O thread 'a' with poll=never does not measure its waits, which are to be "
                "traced; give it poll=always");
  const ProcessResult full = Run({"--disk", disk, "--poll-trace", "/dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.errors, HasSubstr("--poll-trace could not write all of '/dev/full'"));
  // One of its own is written anew.
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Run({"--disk", disk, "--poll-trace", Path("waits")}).status, 0);
  }
}

// ---- Trace of signals ----

struct TracedSignal {
  std::string queue, event;
  int64_t ns = 0;
  uint16_t index = 0;
};

std::vector<TracedSignal> ReadSignals(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "# ringside signal trace 1");
  std::getline(file, line);
  EXPECT_EQ(line, "# queue,ns,event,index");
  std::vector<TracedSignal> signals;
  while (std::getline(file, line)) {
    std::ranges::replace(line, ',', ' ');
    std::istringstream words(line);
    TracedSignal& signal = signals.emplace_back();
    words >> signal.queue >> signal.ns >> signal.event >> signal.index;
    EXPECT_TRUE(words) << line;
  }
  return signals;
}

// Of the newest events, so the first one is any, and its index.
TEST_F(PollCommandTest, ASignalTraceTellsWhatWasTakenShownAndRaised) {
  const ProcessResult run = Run({"--disk", "path=" + MakeDisk("disk", 16 * kMiB), "--iothread",
                                 "signal=early", "--signal-trace", Path("signals")},
                                "rw=randread qd=4 wait=irq runtime=1s");
  ASSERT_EQ(run.status, 0) << run.errors;
  std::map<std::string, int> events;
  std::map<std::string, uint16_t> index;
  int64_t last_ns = 0;
  for (const TracedSignal& signal : ReadSignals(Path("signals"))) {
    ASSERT_EQ(signal.queue, "disk0.0") << "the guest uses no other";
    ++events[signal.event];
    EXPECT_GE(signal.ns, last_ns) << "in the order of their happening";
    last_ns = signal.ns;
    index[signal.event] = signal.index;
    if (signal.event == "shown" && index.contains("took")) {
      EXPECT_LT(static_cast<uint16_t>(index["took"] - signal.index), 256) << "taken before";
    }
    if (signal.event == "raised" && index.contains("shown")) {
      EXPECT_EQ(signal.index, index["shown"]);
    }
  }
  EXPECT_GT(events["took"], 5);
  EXPECT_GT(events["shown"], 5);
  EXPECT_GT(events["raised"], 5);
  EXPECT_EQ(events["held"], 0) << "signal=early";
}

TEST_F(PollCommandTest, RefusesASignalTraceThatCannotBe) {
  const std::string disk = "path=" + MakeDisk("disk", kMiB);
  ExpectRefused({"--signal-trace", Path("signals")},
                "--signal-trace is about disks and networks, and there is none: give a --disk or "
                "a --net");
  ExpectRefused({"--disk", disk, "--signal-trace", Path("disk")},
                "--signal-trace '" + Path("disk") + "' holds something else, which would be lost");
}

// ---- Explanation ----

TEST_F(PollCommandTest, ExplainsWhyThreadsWaitedAsTheyDid) {
  const std::vector<std::string> options = {
      "--disk",     "path=" + MakeDisk("disk", 16 * kMiB) + ",iothreads=a",
      "--iothread", "id=a,poll=grow-shrink,max=20us",
      "--iothread", "id=b,poll=never",
      "--explain"};
  const std::string job = "rw=randread qd=1 runtime=1s";
  const ProcessResult text = Run(options, job);
  ASSERT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.errors, HasSubstr("I/O thread a: poll=grow-shrink,max=20us,grow=2,shrink=2\n"));
  EXPECT_THAT(text.errors, HasSubstr(" waits as the policy has it\n"));
  EXPECT_THAT(text.errors, HasSubstr("  queue 0 of " + Path("disk") + ": "));
  EXPECT_THAT(text.errors, HasSubstr("I/O thread b: poll=never\n"));

  std::vector<std::string> as_json = options;
  as_json.push_back("json");
  const ProcessResult json = Run(as_json, job);
  ASSERT_EQ(json.status, 0) << json.errors;
  const nlohmann::json threads = nlohmann::json::parse(json.errors)["io_threads"];
  ASSERT_EQ(threads.size(), 2u);
  const nlohmann::json& a = threads[0];
  EXPECT_GT(a["sleep_cost"]["cpu_ns"], 0);
  EXPECT_GT(a["idle"]["waits"]["policy"], 50);
  EXPECT_LE(a["idle"]["plan"]["spin_ns"], 20'000);
  const nlohmann::json& queue = a["queues"][0];
  EXPECT_EQ(queue["device"], "disk0");
  EXPECT_EQ(queue["path"], Path("disk"));
  EXPECT_GT(queue["requests"], 50);
  const double found = queue["share_found_by_polling"];
  EXPECT_NEAR(found, 1 - queue["kicks"].get<double>() / queue["batches"].get<double>(), 1e-9);
  const nlohmann::json& b = threads[1];
  EXPECT_EQ(b["sleep_cost"]["cpu_ns"], 0) << "nobody needed to know";
  EXPECT_EQ(b["idle"]["waits"]["policy"], 0);
  EXPECT_EQ(b["queues"].size(), 0u);
}

TEST_F(PollCommandTest, RefusesAnExplanationThatCannotBe) {
  ExpectRefused(
      {"--explain"},
      "--explain is about disks and networks, and there is none: give a --disk or a --net");
  ExpectRefused({"--explain=yaml"}, "--explain 'yaml' is unknown: give text or json");
}

}  // namespace
}  // namespace ringside
