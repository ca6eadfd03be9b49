// The files that `ringside` writes: what is in them already, and what else they are.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/stat.h>

#include "tests/support/descriptors.h"
#include "tests/support/vmm/disk_command_fixture.h"
#include "tests/support/vmm/metrics_parser.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CommandFilesTest : public testing::DiskCommandTest {
 protected:
  std::string MakeFile(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name)) << content;
    return Path(name);
  }
  std::string MakeFifo(const std::string& name) const {
    testing::Must(mkfifo(Path(name).c_str(), 0600), "mkfifo");
    return Path(name);
  }
  std::string Content(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// The bad option is found after the files are opened.
TEST_F(CommandFilesTest, ARunThatDoesNotBeginLeavesThemAsTheyWere) {
  const std::string log = MakeFile("log", "what the guest said before it crashed\n");
  std::string yesterdays = "# ringside poll trace 1\n";
  for (int line = 0; line < 100'000; ++line) yesterdays += "of yesterday\n";
  const std::string trace = MakeFile("trace", yesterdays);
  const ProcessResult result = RunProcess({RINGSIDE_COMMAND, "run", "--kernel", "/nonexistent",
                                           "--serial", "file=" + log + ",truncate=on", "--disk",
                                           "type=null,size=1M", "--poll-trace", trace});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(Content("log"), "what the guest said before it crashed\n");
  EXPECT_TRUE(Content("trace") == yesterdays);

  ASSERT_EQ(Run({"--serial", "file=" + log + ",truncate=on", "--disk", "type=null,size=1M",
                 "--poll-trace", trace})
                .status,
            0);
  EXPECT_THAT(Content("log"), StartsWith("guest: entry"));
  EXPECT_THAT(Content("trace"), StartsWith("# ringside poll trace 1\n# thread"));
  EXPECT_EQ(Content("trace").find("yesterday"), std::string::npos);
}

// 'ulimit -f' ends whoever is not prepared, with a file half written.
TEST_F(CommandFilesTest, FilesThatMayNotBeAsLongAreErrors) {
  const auto run = [](std::vector<std::string> words) {
    std::vector<std::string> command = {"/bin/sh", "-c", "ulimit -f 1024; exec \"$@\"", "sh",
                                        RINGSIDE_COMMAND};
    command.insert(command.end(), words.begin(), words.end());
    return RunProcess(command);
  };
  const ProcessResult memory = run({"run", "--kernel", RINGSIDE_GUEST_ELF, "--memory", "1G"});
  EXPECT_EQ(memory.status, 1) << memory.errors;
  EXPECT_THAT(memory.errors, HasSubstr("raise 'ulimit -f'"));
  const ProcessResult image = run({"image", "create", "--size", "16M", Path("image")});
  EXPECT_EQ(image.status, 1) << image.errors;
  EXPECT_THAT(image.errors, HasSubstr("File too large"));
  EXPECT_FALSE(std::filesystem::exists(Path("image")));
}

// It would run for a moment, on its disks.
TEST_F(CommandFilesTest, NoGuestBeginsWithoutItsSocket) {
  ExpectRefused({"--api-sock", MakeFile("vm.sock", "mine"), "--events", Path("events")},
                "vm.sock' is there already and is no socket");
  EXPECT_EQ(Content("vm.sock"), "mine");
  EXPECT_EQ(Content("events"), "");
}

TEST_F(CommandFilesTest, TheConsolesIsNoneThatTheGuestRunsFrom) {
  const std::string disk = MakeDisk("disk", testing::kMiB);
  std::filesystem::create_hard_link(disk, Path("link"));
  ExpectRefused({"--disk", "path=" + disk, "--serial", "file=" + Path("link") + ",truncate=on"},
                "link' is a disk too, '" + disk + "', and would be written into");
  EXPECT_EQ(std::filesystem::file_size(disk), testing::kMiB);
  const std::string initrd = MakeFile("initrd", "initrd");
  ExpectRefused({"--initrd", initrd, "--serial", "file=" + initrd}, "is the initrd too");
  ExpectRefused({"--disk", "type=null,size=1M", "--poll-trace", Path("new"), "--serial",
                 "file=" + Path("new")},
                "is a trace too");
}

TEST_F(CommandFilesTest, AKeyIsGivenOnce) {
  ExpectRefused({"--serial", "file=" + Path("a") + ",file=" + Path("b")},
                "--serial has 'file=' twice: give it once");
  EXPECT_FALSE(std::filesystem::exists(Path("b")));
  ExpectDiskRefused("type=null,size=1M,size=2M", "--disk has 'size=' twice: give it once");
}

// Opening one would wait for its reader.
TEST_F(CommandFilesTest, ATraceIntoAFifoNeedsItsReader) {
  const std::string fifo = MakeFifo("fifo");
  for (const char* option : {"--trace-latency", "--poll-trace", "--events"}) {
    ExpectRefused({"--disk", "type=null,size=1M", option, fifo},
                  fifo + "': No such device or address; start first what reads it");
  }
  const UniqueFd reader(
      testing::Must(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), "open"));
  EXPECT_EQ(Run({"--disk", "type=null,size=1M", "--poll-trace", fifo}).status, 0);
  EXPECT_THAT(testing::ReadAvailable(reader.get()), StartsWith("# ringside poll trace"));
  EXPECT_EQ(Run({"--events", fifo}).status, 0);
  EXPECT_THAT(testing::ReadAvailable(reader.get()), StartsWith("{\"event\":\"started\""));
}

TEST_F(CommandFilesTest, EventsAreALineEachUpToTheEnd) {
  ASSERT_EQ(Run({"--events", Path("events")}, "panics=1 end=reset").status, 3);
  const std::string events = Content("events");
  size_t from = 0;
  for (const char* each : {"{\"event\":\"started\"", "{\"event\":\"console-spoke\"",
                           "{\"event\":\"panicked\"", "\"detail\":\"reset\",\"count\":1}\n"}) {
    const size_t at = events.find(each, from);
    ASSERT_NE(at, std::string::npos) << each << " in " << events;
    from = at + 1;
  }
  EXPECT_EQ(events.back(), '\n');
  ExpectRefused({"--events", MakeFile("letter", "Dear Sir,\n")},
                "letter' holds something else, which would be lost");
  ExpectRefused({"--events", Path("new"), "--serial", "file=" + Path("new")},
                "is the file of events too");
  const ProcessResult full = Run({"--events", "/dev/full"});
  EXPECT_EQ(full.status, 0) << "how the guest ended";
  EXPECT_THAT(full.errors, HasSubstr("--events cannot write '/dev/full': No space left on device"));
}

TEST_F(CommandFilesTest, ATraceIsOneRunsAlone) {
  ExpectRefused({"--disk", "type=null,size=1M", "--poll-trace", Path("trace"), "--trace-latency",
                 Path("trace")},
                "trace' is already given to something that runs");
}

TEST_F(CommandFilesTest, APictureReplacesOnlyItsLike) {
  const std::string trace = Path("trace");
  ASSERT_EQ(Run({"--disk", "type=null,size=1M", "--trace-latency", trace}).status, 0);
  const auto report = [&](const std::string& svg) {
    return RunProcess({RINGSIDE_COMMAND, "report", trace, "--svg", svg});
  };
  const std::string letter = MakeFile("letter", "Dear Sir,\n");
  const ProcessResult refused = report(letter);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("letter' holds something else, which would be lost"));
  EXPECT_EQ(Content("letter"), "Dear Sir,\n");
  EXPECT_EQ(report(trace).status, 2);  // its own input
  EXPECT_EQ(report(Path("svg")).status, 0);
  const std::string picture = Content("svg");
  EXPECT_EQ(report(Path("svg")).status, 0);
  EXPECT_EQ(Content("svg"), picture);
  EXPECT_THAT(report(MakeFifo("fifo")).errors, HasSubstr("start first what reads it"));
}

// ---- Metrics ----

TEST_F(CommandFilesTest, MetricsAreOfTheWholeRun) {
  const std::string vm1 = Path("vm1.prom");
  for (int run = 0; run < 2; ++run) {  // the second replaces what the first has left
    const ProcessResult result =
        Run({"--disk", "path=" + MakeDisk("disk", 16 * testing::kMiB), "--metrics", vm1,
             "--trace-latency", Path("trace"), "--metrics-interval", "1s"},
            "disk=1 end=poweroff");
    ASSERT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
  }
  const testing::ParsedMetrics metrics = testing::ParseMetrics(Content("vm1.prom"));
  EXPECT_THAT(metrics.problems, ::testing::IsEmpty());
  EXPECT_EQ(metrics.Sum("ringside_machine_state", {{"machine", "vm1"}, {"state", "ended"}}), 1);
  const double requests = metrics.Sum("ringside_requests_total", {{"device", "disk0"}});
  EXPECT_GT(requests, 0);
  EXPECT_EQ(metrics.Sum("ringside_request_duration_seconds_count", {{"device", "disk0"}}),
            requests);
  EXPECT_GT(metrics.Sum("ringside_process_open_fds"), 3);
  EXPECT_GT(metrics.Sum("ringside_process_threads"), 1);
  EXPECT_GT(metrics.Sum("ringside_process_cpu_seconds_total"), 0);
  EXPECT_GT(metrics.Sum("ringside_process_resident_memory_bytes"), 1 << 20);
  for (const auto& file : std::filesystem::directory_iterator(Path(""))) {
    EXPECT_NE(file.path().extension(), ".tmp") << file.path();
  }
}

TEST_F(CommandFilesTest, MetricsReplaceOnlyTheirLike) {
  ExpectRefused({"--metrics", MakeFile("notes", "mine")}, "holds something else");
  EXPECT_EQ(Content("notes"), "mine");
  ExpectRefused({"--metrics", MakeFifo("fifo")}, "holds something else");
  ExpectRefused({"--metrics", Path("nowhere/vm.prom")}, "No such file or directory");
  ExpectRefused({"--metrics", RINGSIDE_GUEST_ELF}, "holds something else");
  ExpectRefused({"--metrics", Path("a"), "--metrics-interval", "999ms"}, "1s to 1h");
  ExpectRefused({"--metrics", Path("a"), "--metrics-interval", "61m"}, "1s to 1h");
  ExpectRefused({"--metrics-interval", "60s"}, "give --metrics FILE");
}

// The machine goes on, and says once what is wrong.
TEST_F(CommandFilesTest, MetricsThatCannotBeWrittenAreNoReasonToStop) {
  std::filesystem::create_directory(Path("gone"));
  const ProcessResult result = RunProcess(
      {"/bin/sh", "-c",
       std::string(RINGSIDE_COMMAND) + " run --kernel " + RINGSIDE_GUEST_ELF +
           " --metrics-interval 1s --cmdline 'end=spin' --metrics " + Path("gone/vm.prom") + " 2>" +
           Path("err") + " & while ! [ -e " + Path("gone/vm.prom") +
           " ]; do sleep 0.01; done; rm -r " + Path("gone") + "; until [ -s " + Path("err") +
           " ]; do sleep 0.1; done; sleep 1.5; kill $!; wait; cat " + Path("err") + " >&2"});
  EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("the metrics were not written to '"));
}

}  // namespace
}  // namespace ringside
