// The files that `ringside` writes: what is in them already, and what else they are.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/stat.h>

#include "tests/support/descriptors.h"
#include "tests/support/vmm/disk_command_fixture.h"

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

}  // namespace
}  // namespace ringside
