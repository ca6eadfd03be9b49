// The ringside command as its users meet it: options, errors, exit codes, the terminal.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/support/directories.h"
#include "tests/support/races.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProcessResult Ringside(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), RINGSIDE_COMMAND);
  return RunProcess(arguments);
}

std::vector<std::string> GuestCommand(const std::string& command_line) {
  return {RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--cmdline", command_line};
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// It goes with the process, and other users may look in.
const testing::TempDirectory& TemporaryDirectory() {
  static const testing::TempDirectory directory;
  directory.OpenToAll();
  return directory;
}

std::string MakeFile(const std::string& name, const std::string& content) {
  const std::string path = TemporaryDirectory() / name;
  std::ofstream(path) << content;
  return path;
}

std::string CopyToTemporary(const std::filesystem::path& path) {
  const std::string copy = TemporaryDirectory() / path.filename();
  std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
  return copy;
}

std::string MakeFifo(const std::string& name) {
  const std::string path = TemporaryDirectory() / name;
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  return path;
}

// ---- Bad input: exit code 2 and one line that names the thing ----

struct BadInputRow {
  const char* name;
  std::vector<std::string> arguments;
  const char* says;
};

class BadInputTest : public ::testing::TestWithParam<BadInputRow> {};

TEST_P(BadInputTest, IsRefusedInOneLineWithCode2) {
  SKIP_WITHOUT_KVM();
  const ProcessResult result = Ringside(GetParam().arguments);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, StartsWith("ringside: error: "));
  EXPECT_THAT(result.errors, HasSubstr(GetParam().says));
  EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
}

const std::string kGuest = RINGSIDE_GUEST_ELF;

INSTANTIATE_TEST_SUITE_P(
    , BadInputTest,
    ::testing::Values(
        BadInputRow{"NoCommand", {}, "no command given"},
        BadInputRow{"UnknownCommand", {"rnu"}, "'rnu' is unknown; did you mean 'run'?"},
        BadInputRow{"UnknownOption",
                    {"run", "--kernal", "x"},
                    "'--kernal' is unknown; did you mean '--kernel'?"},
        BadInputRow{"UnknownOptionWithValue",
                    {"run", "--kernel", kGuest, "--memroy=1G"},
                    "'--memroy' is unknown; did you mean '--memory'?"},
        BadInputRow{"NoKernel", {"run"}, "--kernel"},
        BadInputRow{"NoValue", {"run", "--kernel"}, "--kernel"},
        BadInputRow{"NetIsNoTap",
                    {"run", "--kernel", kGuest, "--net", "tap=lo"},
                    "network 'net0': tap 'lo' cannot be opened: that interface is no tap"},
        BadInputRow{"NetDescriptorIsNotOpen",
                    {"run", "--kernel", kGuest, "--net", "fd=999"},
                    "network 'net0': descriptor 999 is not open"},
        BadInputRow{"NetNobodyListens",
                    {"run", "--kernel", kGuest, "--net", "user,socket=/nonexistent"},
                    "cannot connect to the network's socket '/nonexistent'"},
        BadInputRow{"KernelMissing",
                    {"run", "--kernel", "/nonexistent"},
                    "cannot open kernel '/nonexistent': No such file or directory"},
        BadInputRow{"KernelIsADirectory", {"run", "--kernel", "/"}, "kernel '/' is a directory"},
        BadInputRow{"KernelIsADevice",
                    {"run", "--kernel", "/dev/null"},
                    "kernel '/dev/null' is not a regular file"},
        BadInputRow{"KernelIsEmpty", {"run", "--kernel", MakeFile("empty", "")}, "empty' is empty"},
        BadInputRow{"KernelIsText",
                    {"run", "--kernel", MakeFile("text", std::string(4096, 't'))},
                    "is neither a bzImage nor an ELF file"},
        BadInputRow{"KernelIsTruncated",
                    {"run", "--kernel", MakeFile("short", ReadFile(kGuest).substr(0, 5000))},
                    "is truncated"},
        BadInputRow{"VfioNoAddress",
                    {"run", "--kernel", kGuest, "--vfio", "nvme0"},
                    "'nvme0' is no PCI address"},
        BadInputRow{"VfioTwice",
                    {"run", "--kernel", kGuest, "--vfio", "0000:00:05.0", "--vfio", "0000:00:05.0"},
                    "PCI device '0000:00:05.0' is passed through twice"},
        BadInputRow{"VfioAndDisk",
                    {"run", "--kernel", kGuest, "--vfio", "0000:00:05.0", "--disk",
                     "nvme://0000:00:05.0/1"},
                    "'0000:00:05.0' cannot be passed through and be disk0 too"},
        BadInputRow{"InitrdMissing",
                    {"run", "--kernel", kGuest, "--initrd", "/nonexistent"},
                    "cannot open initrd '/nonexistent'"},
        BadInputRow{"InitrdDoesNotFit",
                    {"run", "--kernel", kGuest, "--memory", "4M", "--initrd",
                     MakeFile("initrd", std::string(4 << 20, 'i'))},
                    "of 4194304 bytes does not fit"},
        BadInputRow{"CommandLineTooLong",
                    {"run", "--kernel", kGuest, "--cmdline", std::string(2048, 'x')},
                    "the command line has 2048 bytes"},
        BadInputRow{"NoPvhEntry",
                    {"run", "--kernel", "/bin/ls", "--entry", "pvh"},
                    "kernel '/bin/ls' has a segment"},
        BadInputRow{"UnknownEntry",
                    {"run", "--kernel", kGuest, "--entry", "bios"},
                    "--entry 'bios' is unknown: give auto, linux or pvh"},
        BadInputRow{"CpusIsNoNumber",
                    {"run", "--kernel", kGuest, "--cpus", "two"},
                    "--cpus 'two' is not a whole number"},
        BadInputRow{"TooManyCpus",
                    {"run", "--kernel", kGuest, "--cpus", "255"},
                    "--cpus 255 is out of range: a machine has 1 to 254 vCPUs"},
        BadInputRow{"MemoryIsNoSize",
                    {"run", "--kernel", kGuest, "--memory", "1.5G"},
                    "--memory '1.5G' is not a size"},
        BadInputRow{"TooLittleMemory",
                    {"run", "--kernel", kGuest, "--memory", "1M"},
                    "--memory '1M' is out of range: a machine has 2M to 1T of memory"},
        BadInputRow{"TooLittleMemoryForTheKernel",
                    {"run", "--kernel", kGuest, "--memory", "2M"},
                    "give it at least"},
        BadInputRow{"MoreMemoryThanTheHost",
                    {"run", "--kernel", kGuest, "--memory", "900G"},
                    "900G of memory is more than this host has"},
        BadInputRow{"UnknownSerial",
                    {"run", "--kernel", kGuest, "--serial", "tcp"},
                    "--serial 'tcp' is unknown: give stdio, none or file=PATH"},
        BadInputRow{"SerialFileWithoutAName",
                    {"run", "--kernel", kGuest, "--serial", "file="},
                    "--serial file is missing"},
        BadInputRow{"SerialUnknownKey",
                    {"run", "--kernel", kGuest, "--serial", "file=/dev/null,size=1M"},
                    "--serial 'size' is unknown: did you mean 'file'?"},
        BadInputRow{"SerialLimitIsNoSize",
                    {"run", "--kernel", kGuest, "--serial", "file=/dev/null,limit=much"},
                    "--serial limit='much' is not a size"},
        BadInputRow{"SerialPathWithASingleComma",
                    {"run", "--kernel", kGuest, "--serial", "file=/dev/null,x"},
                    "--serial 'x' is not KEY=VALUE: a comma in a path is written twice"},
        BadInputRow{"SerialFifoThatNobodyReads",
                    {"run", "--kernel", kGuest, "--serial", "file=" + MakeFifo("fifo")},
                    "fifo': No such device or address; start first what reads it"},
        BadInputRow{"SerialFileCannotBeWritten",
                    {"run", "--kernel", kGuest, "--serial", "file=/nonexistent/console"},
                    "--serial cannot write '/nonexistent/console'"}),
    [](const auto& info) { return info.param.name; });

// ---- What it says of itself ----

TEST(CommandTest, HelpShowsExamplesAndExitCodes) {
  const ProcessResult result = Ringside({"run", "--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("Examples:"));
  EXPECT_THAT(result.output, HasSubstr("Exit codes: 0 the guest powered off"));
}

TEST(CommandTest, VersionIsOneLine) {
  const ProcessResult result = Ringside({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, StartsWith("ringside "));
}

TEST(CommandTest, DoctorSaysWhetherRing0IsNative) {
  SKIP_WITHOUT_KVM();
  const ProcessResult result = Ringside({"doctor"});
  EXPECT_THAT(result.output, HasSubstr("ok    /dev/kvm is there and permitted"));
  EXPECT_THAT(result.output, HasSubstr("ns per instruction"));
  EXPECT_THAT(result.status, ::testing::AnyOf(0, 2));
}

// ---- Exit codes ----

TEST(ExitCodeTest, TellsHowTheGuestEnded) {
  SKIP_WITHOUT_KVM();
  EXPECT_EQ(RunProcess(GuestCommand("end=poweroff")).status, 0);
  EXPECT_EQ(RunProcess(GuestCommand("end=reset")).status, 3);
  const ProcessResult crash = RunProcess(GuestCommand("end=internal"));
  EXPECT_EQ(crash.status, 4);
  EXPECT_THAT(crash.errors, StartsWith("ringside: error: vCPU 0: "));
}

ProcessResult RunWithSerial(const std::string& serial) {
  return Ringside(
      {"run", "--kernel", kGuest, "--cmdline", "end=poweroff", "--serial", serial, "--stats"});
}

TEST(ConsoleOptionTest, OutputGoesToAFileOrNowhere) {
  SKIP_WITHOUT_KVM();
  const std::string path = MakeFile("console", "old content\n");
  const ProcessResult to_file = RunWithSerial("file=" + path);
  EXPECT_EQ(to_file.status, 0);
  EXPECT_EQ(to_file.output, "");
  EXPECT_THAT(to_file.errors, StartsWith("console: "));
  EXPECT_THAT(ReadFile(path), StartsWith("old content\nguest: entry=pvh"));
  EXPECT_THAT(ReadFile(path), EndsWith("guest: end=poweroff\n"));
  EXPECT_EQ(RunWithSerial("file=" + path + ",truncate=on").status, 0);
  EXPECT_THAT(ReadFile(path), StartsWith("guest: entry=pvh"));

  const ProcessResult to_none =
      Ringside({"run", "--kernel", kGuest, "--cmdline", "end=poweroff", "--serial", "none"});
  EXPECT_EQ(to_none.status, 0);
  EXPECT_EQ(to_none.output, "");
}

TEST(ConsoleOptionTest, AFileDoesNotGrowBeyondItsLimitWhoeverWroteItAndItIsSaid) {
  SKIP_WITHOUT_KVM();
  const std::string path = MakeFile("limited", std::string(1000, 'x'));
  const ProcessResult result = RunWithSerial("file=" + path + ",limit=1K");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(ReadFile(path), std::string(1000, 'x') + "guest: entry=pvh cpl=3 c");
  EXPECT_THAT(result.errors,
              HasSubstr("console output '" + path + "' has reached its limit of 1K: "));
  EXPECT_THAT(result.errors, HasSubstr(" bytes of console output were dropped\n"));
  EXPECT_THAT(result.errors,
              ::testing::ContainsRegex("console: 24 bytes written, 0 waiting for their reader, "
                                       "[1-9][0-9]* dropped\n"));
  EXPECT_EQ(RunWithSerial("file=" + path + ",limit=999").status, 0);
  EXPECT_EQ(ReadFile(path).size(), 1024u);
}

TEST(ConsoleOptionTest, ABlockDeviceIsNotOverwritten) {
  SKIP_WITHOUT_KVM();
  // A node of a device that is not there: should it be opened after all, no disk is hurt.
  const std::string path = TemporaryDirectory() / "block";
  if (mknod(path.c_str(), S_IFBLK | 0600, makedev(7, 250)) != 0) {
    GTEST_SKIP() << "only root can make a node of a block device";
  }
  const ProcessResult result = RunWithSerial("file=" + path);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("block' is a block device, which would be overwritten"));
}

TEST(ConsoleOptionTest, AFullDiskIsSaidOnceAndHoldsNobody) {
  SKIP_WITHOUT_KVM();
  const ProcessResult result = RunWithSerial("file=/dev/full");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(
      result.errors,
      StartsWith("ringside: warning: cannot write console output '/dev/full': No space left on "
                 "device; "));
  EXPECT_EQ(std::ranges::count(result.errors.substr(0, result.errors.find("console: ")), '\n'), 2)
      << result.errors;
}

TEST(PermissionTest, KvmForbiddenIsBadInputThatNamesTheGroup) {
  SKIP_WITHOUT_KVM();
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user without rights to /dev/kvm";
  // Copies where anybody may read them: the checkout may lie under /root.
  const std::string ringside = CopyToTemporary(RINGSIDE_COMMAND);
  const std::string guest = CopyToTemporary(RINGSIDE_GUEST_ELF);
  const ProcessResult result = RunProcess({"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                           "--clear-groups", ringside, "run", "--kernel", guest});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              StartsWith("ringside: error: cannot open '/dev/kvm': Permission denied; add your "
                         "user to the group"));
}

TEST(TimingTest, IsOneLineOnStandardError) {
  SKIP_WITHOUT_KVM();
  std::vector<std::string> command = GuestCommand("end=poweroff");
  command.push_back("--timing");
  EXPECT_THAT(RunProcess(command).errors,
              ::testing::MatchesRegex("timing: first KVM_RUN [0-9.]+ ms after main, at monotonic "
                                      "[0-9]+ ns; resident beyond guest memory [0-9.]+ MiB\n"));
}

// ---- The terminal ----

bool SameMode(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

// Where a sanitizer handles it, it reports the crash and exits, once the terminal is restored.
int StatusOfCrash([[maybe_unused]] int signal) {
#ifdef RINGSIDE_ASAN
  return 1;
#else
  return 128 + signal;
#endif
}

struct WayOut {
  const char* name;
  const char* command_line;
  void (*leave)(TerminalProcess&);
  int status;
};

class WayOutTest : public ::testing::TestWithParam<WayOut> {};

TEST_P(WayOutTest, TheTerminalIsRawWhileTheGuestRunsAndRestoredAfter) {
  SKIP_WITHOUT_KVM();
  TerminalProcess process(GuestCommand(GetParam().command_line));
  ASSERT_TRUE(process.WaitFor("guest: echo ready")) << process.output();
  EXPECT_EQ(process.mode().c_lflag & (ICANON | ECHO | ISIG), 0u);
  GetParam().leave(process);
  EXPECT_EQ(process.Wait(), GetParam().status) << process.output();

  EXPECT_TRUE(SameMode(process.mode(), process.initial_mode()));
}

constexpr char kEchoThenPowerOff[] = "echo=1 end=poweroff";

INSTANTIATE_TEST_SUITE_P(
    , WayOutTest,
    ::testing::Values(
        WayOut{"PowerOff", kEchoThenPowerOff, [](TerminalProcess& p) { p.Type("bye\n"); }, 0},
        WayOut{"Crash", "echo=1 end=internal", [](TerminalProcess& p) { p.Type("bye\n"); }, 4},
        WayOut{"DetachKey", kEchoThenPowerOff, [](TerminalProcess& p) { p.Type("\x1d"); }, 0},
        WayOut{"Interrupted", kEchoThenPowerOff, [](TerminalProcess& p) { p.Signal(SIGINT); },
               128 + SIGINT},
        WayOut{"Terminated", kEchoThenPowerOff, [](TerminalProcess& p) { p.Signal(SIGTERM); },
               128 + SIGTERM},
        WayOut{"HungUp", kEchoThenPowerOff, [](TerminalProcess& p) { p.Signal(SIGHUP); },
               128 + SIGHUP},
        WayOut{"OwnCrash", kEchoThenPowerOff, [](TerminalProcess& p) { p.Signal(SIGSEGV); },
               StatusOfCrash(SIGSEGV)}),
    [](const auto& info) { return info.param.name; });

// Once a machine is restored, the library handles SIGBUS, too (base/mapping_guard.h).
TEST(TerminalTest, ARestoredMachinesCrashRestoresIt) {
  SKIP_WITHOUT_KVM();
  const std::string socket = TemporaryDirectory() / "saved.sock";
  const std::string snapshot = TemporaryDirectory() / "snapshot";
  std::vector<std::string> command = GuestCommand(kEchoThenPowerOff);
  command.insert(command.end(), {"--api-sock", socket});
  TerminalProcess saved(command);
  ASSERT_TRUE(saved.WaitFor("guest: echo ready")) << saved.output();
  const ProcessResult save = Ringside({"ctl", socket, "save", snapshot, "--stop", "on"});
  ASSERT_EQ(save.status, 0) << save.errors;
  EXPECT_EQ(saved.Wait(), 0) << saved.output();

  TerminalProcess process({RINGSIDE_COMMAND, "run", "--restore", snapshot});
  ASSERT_TRUE(testing::SpinUntil(
      [&process] { return (process.mode().c_lflag & (ICANON | ECHO | ISIG)) == 0; }));
  process.Signal(SIGBUS);
  EXPECT_EQ(process.Wait(), StatusOfCrash(SIGBUS)) << process.output();
  EXPECT_TRUE(SameMode(process.mode(), process.initial_mode()));
}

TEST(TerminalTest, ControlCReachesTheGuest) {
  SKIP_WITHOUT_KVM();
  TerminalProcess process(GuestCommand(kEchoThenPowerOff));
  ASSERT_TRUE(process.WaitFor("guest: echo ready")) << process.output();
  process.Type("a\x03z\n");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.output(), HasSubstr("a\x03z"));
}

}  // namespace
}  // namespace ringside
