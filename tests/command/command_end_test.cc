// How `ringside run` begins and ends among others: shells, terminals, readers who stop, signals.
#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "tests/support/descriptors.h"
#include "tests/support/vmm/disk_command_fixture.h"

namespace ringside {
namespace {

using ::testing::Contains;
using testing::DevNull;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Pipe;
using ::testing::StartsWith;

class CommandEndTest : public testing::DiskCommandTest {
 protected:
  static std::vector<std::string> Command(const std::string& command_line,
                                          const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {RINGSIDE_COMMAND, "run", "--kernel",  RINGSIDE_GUEST_ELF,
                                        "--memory",       "16M", "--cmdline", command_line};
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Takes nothing more.
  static void Fill(const Pipe& pipe) {
    const int flags = fcntl(pipe.write_end.get(), F_GETFL);
    fcntl(pipe.write_end.get(), F_SETFL, flags | O_NONBLOCK);
    const std::string page(4096, 'x');
    while (write(pipe.write_end.get(), page.data(), page.size()) > 0) {
    }
    fcntl(pipe.write_end.get(), F_SETFL, flags);
  }
  static bool HasVcpu(const ChildProcess& process) {
    const std::vector<std::string> threads = process.Threads();
    return std::ranges::find(threads, "vcpu-0") != threads.end();
  }

  const UniqueFd null_ = DevNull();
};

// As after `<&- >&- 2>&-`: what the run opens must not become its console.
TEST_F(CommandEndTest, ClosedStandardDescriptorsAreNoFilesOfTheRun) {
  ChildProcess process(
      Command("end=poweroff", {"--disk", "type=null,size=1M", "--stats", "--trace-latency",
                               Path("latencies"), "--poll-trace", Path("waits")}),
      -1, -1, -1);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(Content(Path("latencies")), StartsWith("{\"format\""));
  EXPECT_THAT(Content(Path("waits")), StartsWith("# ringside poll trace"));
  EXPECT_THAT(Content(Path("latencies")) + Content(Path("waits")),
              Not(::testing::ContainsRegex("guest: |console: ")));
}

TEST_F(CommandEndTest, AReaderThatHasGoneDoesNotKillIt) {
  Pipe pipe;
  pipe.read_end = UniqueFd();
  ChildProcess process(Command("end=poweroff", {"--stats"}), null_.get(), pipe.write_end.get(),
                       pipe.write_end.get());
  EXPECT_EQ(process.Wait(), 0);
}

// What the console's thread has to say of a full disk would hold it, and with it the machine.
TEST_F(CommandEndTest, AStuckReaderOfErrorsHoldsNoMachine) {
  const Pipe errors;
  Fill(errors);
  absl::Duration least = absl::InfiniteDuration();
  for (int tries = 0; tries < 3 && least >= absl::Seconds(3); ++tries) {
    const absl::Time start = absl::Now();
    ChildProcess process(Command("end=poweroff", {"--serial", "file=/dev/full"}), null_.get(),
                         null_.get(), errors.write_end.get());
    EXPECT_EQ(process.Wait(), 0);
    least = std::min(least, absl::Now() - start);
  }
  EXPECT_LT(least, absl::Seconds(3)) << "it flushes more than once";
}

TEST_F(CommandEndTest, WhoDoesNotReadTheStatisticsIsLeftBySignal) {
  const Pipe words, errors;
  Fill(errors);
  ChildProcess process(Command("end=poweroff", {"--stats"}), null_.get(), words.write_end.get(),
                       errors.write_end.get());
  std::string said;
  while (said.find("guest: end=poweroff") == std::string::npos) {
    const std::string more = testing::ReadExactly(words.read_end.get(), 1);
    ASSERT_NE(more, "") << said;
    said += more;
  }
  ASSERT_TRUE(testing::SpinUntil([&] { return process.Threads().size() == 1; }));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
}

// The guest has powered off, and for two seconds nobody takes its last words.
TEST_F(CommandEndTest, ASignalAfterTheGuestsEndIsNotTwoToWaitFor) {
  const Pipe typed, words;
  Fill(words);
  ChildProcess process(Command("echo=1 end=poweroff"), typed.read_end.get(), words.write_end.get(),
                       null_.get());
  ASSERT_TRUE(testing::SpinUntil([&] { return HasVcpu(process); }));
  testing::WriteAll(typed.write_end.get(), "bye\n");
  ASSERT_TRUE(testing::SpinUntil([&] { return !HasVcpu(process); }));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);  // by itself it would end with 0
}

// A lease makes whoever opens the file wait for its holder, who is told.
TEST_F(CommandEndTest, BeforeThereIsAMachineASignalKillsAsUsual) {
  std::signal(SIGIO, SIG_IGN);
  const std::string path = Path("waits");
  std::ofstream(path) << "# ringside poll trace 1\n";
  const UniqueFd holder(testing::Must(open(path.c_str(), O_RDWR | O_CLOEXEC), "open"));
  if (fcntl(holder.get(), F_SETLEASE, F_WRLCK) != 0)
    GTEST_SKIP() << "no leases on this file system";
  ChildProcess process(
      Command("end=poweroff", {"--disk", "type=null,size=1M", "--poll-trace", path}), null_.get(),
      null_.get(), null_.get());
  ASSERT_TRUE(testing::SpinUntil([&] { return fcntl(holder.get(), F_GETLEASE) != F_WRLCK; }));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  fcntl(holder.get(), F_SETLEASE, F_UNLCK);
}

// The leader of the session gives the terminal to the command, and takes it back when told to.
constexpr char kSession[] = R"(
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
signal.sigwait([signal.SIGUSR1])
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, os.getpgrp())
os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, os.WUNTRACED)
sys.exit(99 if os.WIFSTOPPED(status) else 128 + os.WTERMSIG(status))
)";

TEST_F(CommandEndTest, FromTheBackgroundTheTerminalIsRestoredToo) {
  std::vector<std::string> command = Command("echo=1");
  command.insert(command.begin(), {"/usr/bin/python3", "-c", kSession});
  TerminalProcess process(command);
  ASSERT_TRUE(process.WaitFor("guest: echo ready")) << process.output();
  EXPECT_EQ(process.mode().c_lflag & ICANON, 0u);
  process.Signal(SIGUSR1);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM) << process.output();
  EXPECT_EQ(process.mode().c_lflag, process.initial_mode().c_lflag);
}

TEST_F(CommandEndTest, HelpTellsTheExitCodeOfASignal) {
  EXPECT_THAT(RunProcess({RINGSIDE_COMMAND, "run", "--help"}).output,
              HasSubstr("128 + n ended by signal n"));
}

}  // namespace
}  // namespace ringside
