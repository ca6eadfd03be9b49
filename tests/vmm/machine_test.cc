// Whole machines on this host's KVM, running the bare-metal guest of tests/guest.
#include "vmm/machine.h"

#include <array>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <regex>
#include <thread>
#include <unistd.h>

#include "absl/time/clock.h"
#include "base/status.h"
#include "kvm/cpu_baseline.h"
#include "tests/support/directories.h"
#include "tests/support/own_threads.h"
#include "tests/support/vfio/fake_pci_device.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using testing::CountEntries;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGiB = 1 << 30;

// A file whose bytes add up to a known sum.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content) {
    const int fd = mkstemp(path_.data());
    EXPECT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    close(fd);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = ::testing::TempDir() + "ringside-XXXXXX";
};

class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  TestConsole console_;
};

// ---- Booting, by each entry ----

class MachineEntryTest : public ::testing::TestWithParam<BootProtocol> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  TestConsole console_;
};

TEST_P(MachineEntryTest, ReachesRing3WithWhatItWasGiven) {
  MachineConfig config = GuestConfig(console_, "unmapped=1 end=poweroff");
  config.protocol = GetParam();
  const GuestRun run = RunGuest(config, console_);
  EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
  const char* entry = GetParam() == BootProtocol::kPvh ? "pvh" : "linux64";
  EXPECT_THAT(run.output,
              HasSubstr(absl::StrFormat(
                  "guest: entry=%s cpl=3 cmdline=\"unmapped=1 end=poweroff\"\n", entry)));
  EXPECT_THAT(run.output, HasSubstr("guest: memory start=0x0 size=0x9fc00 type=1\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: memory start=0x100000 size=0x3f00000 type=1\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: initrd=none\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: rsdp=0xe0000 ok\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: unmapped ok\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: end=poweroff\n"));
  EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
}

TEST_P(MachineEntryTest, UsesMemoryAbove4GiB) {
  MachineConfig config = GuestConfig(console_, "high=1");
  config.protocol = GetParam();
  config.memory = 6 * kGiB;
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, HasSubstr("guest: memory start=0x100000000 size=0xc0000000 type=1\n"));
  EXPECT_THAT(run.output, HasSubstr("guest: high ok\n"));
}

TEST_P(MachineEntryTest, FindsItsInitrdAtTheTopOfMemory) {
  const TemporaryFile initrd("initrd");
  MachineConfig config = GuestConfig(console_, "");
  config.protocol = GetParam();
  config.initrd = initrd.path();
  const GuestRun run = RunGuest(config, console_);
  // i + n + i + t + r + d
  EXPECT_THAT(run.output, HasSubstr("guest: initrd start=0x3fff000 size=0x6 sum=0x0000028a\n"));
}

INSTANTIATE_TEST_SUITE_P(, MachineEntryTest,
                         ::testing::Values(BootProtocol::kPvh, BootProtocol::kLinux),
                         [](const auto& info) {
                           return info.param == BootProtocol::kPvh ? "Pvh" : "Linux";
                         });

// ---- Ending, each way there is ----

TEST_F(MachineTest, ResetIsReportedAsReset) {
  const GuestRun run = RunGuest(GuestConfig(console_, "end=reset"), console_);
  EXPECT_EQ(run.end.kind, EndKind::kReset);
  EXPECT_EQ(run.end.detail, "");
}

TEST_F(MachineTest, TripleFaultIsACrashThatSaysWhere) {
  const GuestRun run = RunGuest(GuestConfig(console_, "end=triple"), console_);
  EXPECT_EQ(run.end.kind, EndKind::kCrash);
  // Some hosts' KVM report what led to it as an internal error instead.
  EXPECT_THAT(run.end.detail, ContainsRegex("vCPU 0: .* at rip=0x[0-9a-f]+"));
}

TEST_F(MachineTest, AnInstructionKvmCannotEmulateIsACrash) {
  const GuestRun run = RunGuest(GuestConfig(console_, "end=internal"), console_);
  EXPECT_EQ(run.end.kind, EndKind::kCrash);
  EXPECT_THAT(run.end.detail, HasSubstr("vCPU 0: an instruction KVM cannot emulate at rip="));
}

TEST_F(MachineTest, StopEndsAGuestInAnyState) {
  for (const char* state : {"end=spin", "end=halt"}) {
    TestConsole console;
    MachineConfig config = GuestConfig(console, state);
    config.cpus = 4;  // three of which wait for their INIT
    absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    ASSERT_TRUE((*machine)->Start().ok());
    ASSERT_TRUE(console.WaitFor(state));
    (*machine)->Stop();
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
  }
}

TEST_F(MachineTest, TheFirstReasonToEndCounts) {
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Create(GuestConfig(console_, "end=reset"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kReset);
  (*machine)->Stop();
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kReset);
}

TEST_F(MachineTest, AMachineNeverStartedCanBeStoppedAndDestroyed) {
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(GuestConfig(console_, ""));
  ASSERT_TRUE(machine.ok()) << machine.status();
  (*machine)->Stop();
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
}

TEST_F(MachineTest, TheEndEventBecomesReadable) {
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(GuestConfig(console_, ""));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_FALSE(testing::WaitForFd((*machine)->end_fd(), POLLIN, absl::ZeroDuration()));
  ASSERT_TRUE((*machine)->Start().ok());
  (*machine)->Wait();
  EXPECT_TRUE(testing::WaitForFd((*machine)->end_fd(), POLLIN, absl::ZeroDuration()));
}

// Takes the signal by which a vCPU thread, where it is blocked, is asked to leave the guest.
bool TakeLeaveSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSTKFLT);
  const timespec limit = {.tv_sec = 10};
  return sigtimedwait(&set, nullptr, &limit) == SIGSTKFLT;
}

// A vCPU may be in the middle of an access, and go on with others, until it has been joined. Here
// one stays in an access until it is asked to leave for the second time: Stop asks once, so that is
// Wait, which is joining it.
TEST_F(MachineTest, DevicesAreStoppedOnceNoVcpuCanReachThem) {
  testing::FakePciDevice::Record record;
  testing::BoundedEvent in_access, asked;
  std::optional<int> resets_while_in_access;
  record.on_order = [&] {
    if (resets_while_in_access.has_value()) return;
    in_access.Notify();
    const bool asked_once = TakeLeaveSignal();
    asked.Notify();
    const bool asked_twice = asked_once && TakeLeaveSignal();
    resets_while_in_access = asked_twice ? record.resets : -1;
  };
  MachineConfig config = GuestConfig(console_, "assigned=1");
  config.assigned = {{.address = "0000:0a:00.0"}};
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Internals::Create(config, {.open_assigned = [&](const AssignedConfig&) {
                                   return std::make_unique<testing::FakePciDevice>(record);
                                 }});
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  in_access.WaitOrAbort();
  (*machine)->Stop();
  asked.WaitOrAbort();
  (*machine)->Wait();
  EXPECT_EQ(resets_while_in_access, 0);
  EXPECT_EQ(record.resets, 1);
}

TEST_F(MachineTest, StoppingAtAnyMomentNeitherHangsNorLeaks) {
  RunGuest(GuestConfig(console_, ""), console_);  // whatever is set up once
  const size_t descriptors = CountEntries("/proc/self/fd");
  const size_t threads = CountEntries("/proc/self/task");
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    MachineConfig config = GuestConfig(console_, "end=spin");
    config.cpus = 1 + i % 3;
    absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    std::thread stopper([&machine, delay = random() % 2000] {
      absl::SleepFor(absl::Microseconds(delay));
      (*machine)->Stop();
    });
    ASSERT_TRUE((*machine)->Start().ok());
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
    stopper.join();
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  EXPECT_TRUE(testing::ThreadsComeDownTo(threads));
}

// ---- A guest among others, in a process that is not its own ----

TEST_F(MachineTest, MachinesOfOneProcessDoNotNoticeEachOther) {
  TestConsole consoles[3];
  std::vector<std::unique_ptr<Machine>> machines;
  for (const TestConsole& console : consoles) {
    auto machine = Machine::Create(GuestConfig(console, "echo=1"));
    ASSERT_TRUE(machine.ok()) << machine.status();
    ASSERT_TRUE((*machine)->Start().ok());
    machines.push_back(*std::move(machine));
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(consoles[i].WaitFor("guest: echo ready\n"));
    consoles[i].Type(absl::StrFormat("machine %d\n", i));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(machines[i]->Wait().kind, EndKind::kPowerOff);
    EXPECT_THAT(consoles[i].Output(), HasSubstr(absl::StrFormat("machine %d", i)));
    EXPECT_THAT(consoles[i].Output(), Not(HasSubstr(absl::StrFormat("machine %d", (i + 1) % 3))));
  }
}

TEST_F(MachineTest, NoSignalHandlerOfTheProcessChanges) {
  const auto handlers = [] {
    std::vector<void (*)(int)> all;
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
      struct sigaction action = {};
      all.push_back(sigaction(signal, nullptr, &action) == 0 ? action.sa_handler : nullptr);
    }
    return all;
  };
  const auto before = handlers();
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Create(GuestConfig(console_, "end=spin"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  EXPECT_EQ(handlers(), before);
  (*machine)->Stop();
  (*machine)->Wait();
  EXPECT_EQ(handlers(), before);
}

// ---- Processors ----

TEST_F(MachineTest, AllProcessorsStart) {
  MachineConfig config = GuestConfig(console_, "smp=4");
  config.cpus = 4;
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, HasSubstr("guest: smp 4 ok\n"));
}

TEST_F(MachineTest, AsManyProcessorsAsAreDocumentedCanBeBuiltAndStopped) {
  MachineConfig config = GuestConfig(console_, "");
  config.cpus = Machine::kMaxCpus;
  EXPECT_EQ(RunGuest(config, console_).end.kind, EndKind::kPowerOff);
}

// EAX, EBX, ECX and EDX of a leaf, such as "0x7.0", as the guest has printed them.
std::array<uint32_t, 4> CpuidOf(const std::string& output, const std::string& leaf) {
  std::smatch words;
  const std::regex line("guest: cpuid " + leaf + " 0x(\\w+) 0x(\\w+) 0x(\\w+) 0x(\\w+)\n");
  std::array<uint32_t, 4> registers = {};
  if (!std::regex_search(output, words, line)) {
    ADD_FAILURE() << leaf << " is not in " << output;
    return registers;
  }
  for (size_t i = 0; i < registers.size(); ++i) {
    registers[i] = static_cast<uint32_t>(std::stoul(words[i + 1], nullptr, 16));
  }
  return registers;
}

TEST_F(MachineTest, ProcessorsSayTheyAreInAVirtualMachineWithATscDeadlineTimer) {
  const GuestRun run = RunGuest(GuestConfig(console_, "cpuid=1"), console_);
  const uint32_t ecx = CpuidOf(run.output, "0x1\\.0")[2];
  EXPECT_TRUE((ecx & (uint32_t{1} << 31)) != 0);
  EXPECT_TRUE((ecx & (uint32_t{1} << 24)) != 0);
}

struct Baseline {
  CpuBaseline baseline;
  uint32_t leaf_1_ecx, leaf_7_ebx, components, size;
};
class MachineBaselineTest : public ::testing::TestWithParam<Baseline> {};

// What KVM itself makes of it comes in: OSXSAVE, which the guest's CR4 leaves off, and the size
// that goes with XCR0.
TEST_P(MachineBaselineTest, TheGuestSeesNoMore) {
  SKIP_WITHOUT_KVM();
  constexpr uint32_t kHypervisorAndDeadline = 0x81000000, kGigabytePages = uint32_t{1} << 26;
  constexpr std::array<uint32_t, 4> kNone = {};
  const TestConsole console;
  MachineConfig config = GuestConfig(console, "cpuid=1");
  config.cpu_baseline = GetParam().baseline;
  if (const absl::Status status = Machine::Create(config).status(); !status.ok()) {
    ASSERT_THAT(status.message(), HasSubstr("cpu-baseline x86-64-v"));
    GTEST_SKIP() << status.message();
  }
  const GuestRun run = RunGuest(config, console);
  EXPECT_EQ(run.end.kind, EndKind::kPowerOff);
  EXPECT_EQ(CpuidOf(run.output, "0x1\\.0")[2], GetParam().leaf_1_ecx | kHypervisorAndDeadline);
  const std::array<uint32_t, 4> leaf_7 = {0, GetParam().leaf_7_ebx, 0, 0};
  EXPECT_EQ(CpuidOf(run.output, "0x7\\.0"), leaf_7);
  EXPECT_EQ(CpuidOf(run.output, "0xa\\.0"), kNone);
  const std::array<uint32_t, 4> xsave = CpuidOf(run.output, "0xd\\.0");
  EXPECT_EQ(xsave[0], GetParam().components);
  EXPECT_LE(xsave[2], GetParam().size);  // AMD has those of v4 closer together
  EXPECT_EQ(CpuidOf(run.output, "0xd\\.1"), kNone);
  EXPECT_EQ(CpuidOf(run.output, "0x80000001\\.0")[3] & kGigabytePages, 0u);
  EXPECT_EQ(CpuidOf(run.output, "0x80000008\\.0")[0] >> 8 & 0xff, 48u);
}

INSTANTIATE_TEST_SUITE_P(
    , MachineBaselineTest,
    ::testing::Values(Baseline{CpuBaseline::kX86_64V2, 0x00b82201, 0x2, 0, 0},
                      Baseline{CpuBaseline::kX86_64V3, 0x34f83201, 0x12a, 0x7, 832},
                      Baseline{CpuBaseline::kX86_64V4, 0x34f83201, 0xd003012a, 0xe7, 2688}),
    [](const auto& info) {
      return "V" + std::to_string(static_cast<int>(info.param.baseline) + 1);
    });

TEST_F(MachineTest, AnIntervalTimerIsThereIfAskedForOrIfThereIsNoOther) {
  const absl::StatusOr<Kvm> kvm = Kvm::Open();
  ASSERT_TRUE(kvm.ok()) << kvm.status();
  const bool needed = kvm->Extension(KVM_CAP_TSC_DEADLINE_TIMER) == 0;
  for (const auto& [pit, expected] :
       {std::pair(Pit::kOn, true), {Pit::kOff, false}, {Pit::kAuto, needed}}) {
    const TestConsole console;
    MachineConfig config = GuestConfig(console, "pit=1");
    config.pit = pit;
    const GuestRun run = RunGuest(config, console);
    EXPECT_EQ(run.end.kind, EndKind::kPowerOff);
    EXPECT_THAT(run.output, HasSubstr(expected ? "guest: pit counts\n" : "guest: pit absent\n"));
    EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
  }
}

// ---- The console ----

TEST_F(MachineTest, TypedTextReachesAGuestThatPolls) {
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Create(GuestConfig(console_, "echo=1"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  console_.Type("typed before the guest was there\n");
  ASSERT_TRUE((*machine)->Start().ok());
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), HasSubstr("guest: echo ready\ntyped before the guest was there"));
  EXPECT_THAT(console_.Output(), HasSubstr("guest: echo done\n"));
}

TEST_F(MachineTest, ATypedCharacterInterruptsTheGuest) {
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Create(GuestConfig(console_, "irq=1"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  ASSERT_TRUE(console_.WaitFor("guest: irq ready\n"));
  console_.Type("z");
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), HasSubstr("guest: irq got 0x7a\n"));
}

TEST_F(MachineTest, TheDetachKeyEndsTheMachineEvenIfTheGuestDoesNotListen) {
  MachineConfig config = GuestConfig(console_, "end=spin");
  config.console.detach_key = 0x1d;
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  console_.Type("nobody hears this\x1d");
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
}

TEST_F(MachineTest, AMachineWithoutAConsoleRuns) {
  MachineConfig config = GuestConfig(console_, "");
  config.console = {};
  EXPECT_EQ(RunGuest(config, console_).end.kind, EndKind::kPowerOff);
}

// ---- Configurations that cannot be ----

struct BadConfig {
  const char* name;
  void (*spoil)(MachineConfig&);
  const char* says;
};

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(BadConfigTest, IsRefusedInOneLine) {
  const TestConsole console;
  MachineConfig config = GuestConfig(console, "");
  GetParam().spoil(config);
  const absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
  ASSERT_FALSE(machine.ok());
  EXPECT_THAT(std::string(Message(machine.status())), HasSubstr(GetParam().says));
  EXPECT_THAT(std::string(Message(machine.status())), Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    , BadConfigTest,
    ::testing::Values(
        BadConfig{"NoCpu", [](MachineConfig& c) { c.cpus = 0; },
                  "cpus=0 is out of range: a machine has 1 to 254 vCPUs"},
        BadConfig{"NoMemory", [](MachineConfig& c) { c.memory = 0; },
                  "memory=0 is out of range: a machine has 2M to 1T of memory"},
        BadConfig{"MoreMemoryThanTheHost", [](MachineConfig& c) { c.memory = 900 * kGiB; },
                  "more than this host has"},
        BadConfig{"ANodeThatIsNotThere", [](MachineConfig& c) { c.memory_nodes = {0, 1000}; },
                  "memory-node 1000 does not exist: this host has 0"},
        BadConfig{"NoKvm", [](MachineConfig& c) { c.kvm_path = "/nonexistent/kvm"; },
                  "cannot open '/nonexistent/kvm': No such file or directory; enable"},
        BadConfig{"NotKvm", [](MachineConfig& c) { c.kvm_path = "/dev/null"; },
                  "'/dev/null' is not a usable KVM"},
        BadConfig{"NoKernel", [](MachineConfig& c) { c.kernel = "/nonexistent/kernel"; },
                  "cannot open kernel '/nonexistent/kernel'"},
        BadConfig{"NoInitrd", [](MachineConfig& c) { c.initrd = "/nonexistent/initrd"; },
                  "cannot open initrd '/nonexistent/initrd'"},
        BadConfig{"LongCommandLine",
                  [](MachineConfig& c) { c.command_line = std::string(2048, 'x'); },
                  "the command line has 2048 bytes"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ringside
