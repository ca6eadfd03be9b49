// Disks as a guest without firmware meets them: whole machines on this host's KVM, running the
// bare-metal guest of tests/guest, whose disk_checks.cc and hostile_*.cc say what it does.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <regex>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/guest/pattern.h"
#include "tests/support/directories.h"
#include "tests/support/own_threads.h"
#include "tests/support/recording_log.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using testing::CountEntries;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;
// Where the tests are built: a disk, and O_DIRECT means what it says.
constexpr const char* kDirectory = ".";
constexpr uint64_t kPatternBytes = guest::kPatternSectors * 512;

DiskConfig Disk(const TempFile& image, CacheMode cache = CacheMode::kNone,
                Engine engine = Engine::kAuto) {
  return {.backend = FileConfig{.path = image.path(), .cache = cache, .aio = engine}};
}

DiskConfig ReadOnly(const TempFile& image) {
  return {.backend =
              FileConfig{.path = image.path(), .read_only = true, .cache = CacheMode::kNone}};
}

// What disk=1 leaves behind.
std::string PatternOf(uint64_t seed) {
  std::string bytes;
  for (uint64_t sector = 0; sector < guest::kPatternSectors; ++sector) {
    for (uint64_t word = 0; word < 64; ++word) {
      const uint64_t value = guest::PatternWord(seed, sector, word);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return bytes;
}

// The number behind the first "name=" in the line that starts with `line`.
uint64_t NumberIn(const std::string& output, const std::string& line, const std::string& name) {
  std::smatch found;
  const std::regex number("guest: " + line + "[^\n]* " + name + "=(\\d+)");
  if (std::regex_search(output, found, number)) return std::stoull(found[1]);
  ADD_FAILURE() << "no " << name << "= in a line '" << line << "' of\n" << output;
  return 0;
}

class DiskMachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line, std::vector<DiskConfig> disks) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = std::move(disks);
    return config;
  }
  // To its end, which must be a power-off after checks that found nothing wrong.
  std::string RunWell(const MachineConfig& config) const {
    const GuestRun run = RunGuest(config, console_);
    EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
    EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
    return run.output;
  }

  TestConsole console_;
};

// ---- What a good driver may expect ----

struct Way {
  CacheMode cache;
  Engine engine;
};

class DiskWayTest : public DiskMachineTest, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(DiskWayTest, TheGuestWritesAndReadsPolledAndByInterrupt) {
  const TempFile image(16 * kMiB, kDirectory);
  const std::string output =
      RunWell(Config("disk=1 seed=7", {Disk(image, GetParam().cache, GetParam().engine)}));
  const bool write_through =
      GetParam().cache == CacheMode::kWritethrough || GetParam().cache == CacheMode::kDirectsync;
  EXPECT_THAT(output,
              ContainsRegex(absl::StrFormat("guest: disk 0 sectors=32768 ro=0 block=[0-9]+ "
                                            "transport=pci queues=1 writeback=%d serial=disk0\n",
                                            write_through ? 0 : 1)));
  EXPECT_GT(NumberIn(output, "disk 0 ok", "polled"), 100u);
  EXPECT_GT(NumberIn(output, "disk 0 ok", "interrupts"), 50u);
  EXPECT_EQ(NumberIn(output, "disk 0 ok", "unwanted"), 0u);
  EXPECT_TRUE(image.Content(0, kPatternBytes) == PatternOf(7));
}

INSTANTIATE_TEST_SUITE_P(, DiskWayTest,
                         ::testing::Values(Way{CacheMode::kNone, Engine::kIoUring},
                                           Way{CacheMode::kNone, Engine::kNative},
                                           Way{CacheMode::kNone, Engine::kThreads},
                                           Way{CacheMode::kWriteback, Engine::kIoUring},
                                           Way{CacheMode::kWriteback, Engine::kThreads},
                                           Way{CacheMode::kWritethrough, Engine::kIoUring},
                                           Way{CacheMode::kWritethrough, Engine::kThreads},
                                           Way{CacheMode::kDirectsync, Engine::kIoUring},
                                           Way{CacheMode::kDirectsync, Engine::kNative},
                                           Way{CacheMode::kUnsafe, Engine::kIoUring}),
                         [](const auto& info) {
                           return std::string(CacheModeName(info.param.cache)) + "_" +
                                  EngineName(info.param.engine);
                         });

TEST_F(DiskMachineTest, WhatOneMachineWroteTheNextOneReads) {
  const TempFile image(16 * kMiB, kDirectory);
  RunWell(Config("disk=1 seed=8", {Disk(image)}));
  EXPECT_THAT(RunWell(Config("verify-disk=8", {Disk(image, CacheMode::kWriteback)})),
              HasSubstr("guest: disk 0 verified sectors=4096\n"));
  // And the guest would notice if it were something else.
  const GuestRun other = RunGuest(Config("verify-disk=9", {Disk(image)}), console_);
  EXPECT_THAT(other.output, HasSubstr("FAIL disk: expected the pattern of seed 9"));
}

TEST_F(DiskMachineTest, AReadOnlyDiskRefusesWritesAndKeepsItsFile) {
  const TempFile writable(4 * kMiB, kDirectory);
  TempFile read_only(4 * kMiB, kDirectory);
  read_only.Fill(0, PatternOf(3));
  const std::string before = read_only.Content(0, 4 * kMiB);
  const std::string output =
      RunWell(Config("disk=1 seed=9", {Disk(writable), ReadOnly(read_only)}));
  EXPECT_THAT(output, HasSubstr("guest: disk 0 ok"));
  EXPECT_THAT(output, ContainsRegex("guest: disk 1 sectors=8192 ro=1 .*serial=disk1\n"));
  EXPECT_THAT(output, HasSubstr("guest: disk 1 ok read-only\n"));
  EXPECT_TRUE(read_only.Content(0, 4 * kMiB) == before);
  EXPECT_TRUE(writable.Content(0, kPatternBytes) == PatternOf(9));
}

TEST_F(DiskMachineTest, EachDiskHasItsOwnFileAndSerial) {
  const TempFile images[] = {TempFile(4 * kMiB, kDirectory), TempFile(5 * kMiB, kDirectory),
                             TempFile(6 * kMiB, kDirectory)};
  std::vector<DiskConfig> disks;
  for (const TempFile& image : images) disks.push_back(Disk(image));
  disks[1].serial = "twenty-characters-ab";
  disks[2].queues = 3;
  const std::string output = RunWell(Config("disk=1", disks));
  EXPECT_THAT(output, ContainsRegex("guest: disk 0 sectors=8192 .*queues=1 .*serial=disk0\n"));
  EXPECT_THAT(output, ContainsRegex("guest: disk 1 sectors=10240 .*serial=twenty-characters-ab\n"));
  EXPECT_THAT(output, ContainsRegex("guest: disk 2 sectors=12288 .*queues=3 .*serial=disk2\n"));
  EXPECT_THAT(output, HasSubstr("guest: disks=3\n"));
}

TEST_F(DiskMachineTest, EachQueueServesAndInterruptsItsOwnProcessor) {
  const TempFile image(16 * kMiB, kDirectory);
  MachineConfig config = Config("smp=2 queue-check=2 seed=11", {Disk(image)});
  config.cpus = 2;
  config.disks[0].queues = 2;
  const std::string output = RunWell(config);
  for (const char* queue : {"queue 0 processor=0", "queue 1 processor=1"}) {
    const std::string line = absl::StrFormat("disk 0 %s wait=", queue);
    EXPECT_EQ(NumberIn(output, line + "poll", "interrupts"), 0u);
    EXPECT_GT(NumberIn(output, line + "irq", "interrupts"), 50u);
  }
  EXPECT_THAT(output, HasSubstr("guest: disk 0 transport=pci queues=2 ok\n"));
  EXPECT_TRUE(image.Content(0, kPatternBytes) == PatternOf(11));
}

TEST_F(DiskMachineTest, StatisticsCountWhatTheGuestDid) {
  const TempFile image(16 * kMiB, kDirectory);
  absl::StatusOr<std::unique_ptr<Machine>> machine =
      Machine::Create(Config("disk=1", {Disk(image)}));
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
  const MachineStatistics statistics = (*machine)->Statistics();
  ASSERT_EQ(statistics.disks.size(), 1u);
  ASSERT_EQ(statistics.disks[0].queues.size(), 1u);
  const QueueStatistics& queue = statistics.disks[0].queues[0];
  const std::string output = console_.Output();
  // The eventfd's counter is the number of kicks, however few of them woke anyone.
  EXPECT_EQ(queue.kicks, NumberIn(output, "disk 0 ok", "kicks"));
  EXPECT_GE(queue.interrupts, NumberIn(output, "disk 0 ok", "interrupts"));
  EXPECT_GE(queue.reads + queue.writes, NumberIn(output, "disk 0 ok", "polled"));
  EXPECT_GE(queue.bytes_written, 6 * kPatternBytes);
  EXPECT_GT(queue.flushes, 0u);
}

// Those who watch a machine must not make it miss a kick.
TEST_F(DiskMachineTest, StatisticsMayBeReadWhileTheGuestKicks) {
  const TempFile image(16 * kMiB);
  for (const Engine engine : {Engine::kNative, Engine::kIoUring}) {
    const TestConsole console;
    MachineConfig config = GuestConfig(console, "rw=randread qd=1 runtime=300ms");
    config.disks = {Disk(image, CacheMode::kNone, engine)};
    absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    ASSERT_TRUE((*machine)->Start().ok());
    uint64_t kicks = 0;
    while (!testing::WaitForFd((*machine)->end_fd(), POLLIN, absl::ZeroDuration())) {
      const uint64_t now = (*machine)->Statistics().disks.at(0).queues.at(0).kicks;
      EXPECT_GE(now, kicks);
      kicks = now;
    }
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
    kicks = std::max(kicks, (*machine)->Statistics().disks.at(0).queues.at(0).kicks);
    EXPECT_THAT(console.Output(), ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
    EXPECT_THAT(console.Output(), Not(HasSubstr("FAIL")));
    EXPECT_GT(kicks, 0u);
  }
}

TEST_F(DiskMachineTest, ADiskWithoutAStorageServesRequestsPolledAndByInterrupt) {
  for (const std::string wait : {"poll", "irq"}) {
    const TestConsole console;
    MachineConfig config = GuestConfig(console, "rw=randrw qd=1,32 runtime=200ms wait=" + wait);
    config.disks = {{.backend = NullConfig{.size = kMiB << 10}}};
    absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    ASSERT_TRUE((*machine)->Start().ok());
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
    const std::string output = console.Output();
    EXPECT_THAT(output, ContainsRegex("\"qd\":1,.*\"ios\":[1-9].*\"errors\":0,"));
    EXPECT_THAT(output, ContainsRegex("\"qd\":32,.*\"ios\":[1-9].*\"errors\":0,"));
    EXPECT_THAT(output, Not(HasSubstr("FAIL")));
    const DiskStatistics disk = (*machine)->Statistics().disks.at(0);
    EXPECT_EQ(disk.path, "null");
    EXPECT_EQ(disk.engine, "null");
    EXPECT_GT(disk.queues[0].reads, 0u);
    EXPECT_GT(disk.queues[0].writes, 0u);
    EXPECT_EQ(disk.queues[0].errors, 0u);
  }
}

// ---- Whatever a driver does ----

// The behaviours that must end in DEVICE_NEEDS_RESET, and those that must only do no harm.
constexpr const char* kStopsTheDevice[] = {"loop",
                                           "loop-of-three",
                                           "loop-in-table",
                                           "huge-length",
                                           "huge-sum",
                                           "beyond-memory",
                                           "hole",
                                           "wrap",
                                           "across-end-of-memory",
                                           "doorbells",
                                           "header-in-hole",
                                           "status-in-hole",
                                           "status-wraps",
                                           "status-not-writable",
                                           "no-status",
                                           "only-status",
                                           "short-header",
                                           "writable-first",
                                           "empty",
                                           "next-beyond-table",
                                           "loop-of-all",
                                           "indirect-in-indirect",
                                           "indirect-alone",
                                           "indirect-with-next",
                                           "indirect-odd-length",
                                           "indirect-empty",
                                           "indirect-huge",
                                           "indirect-in-hole",
                                           "indirect-wraps",
                                           "indirect-next-beyond-table",
                                           "indirect-own-table",
                                           "indirect-own-table-behind-header",
                                           "indirect-not-negotiated",
                                           "head-twice",
                                           "head-beyond-queue",
                                           "head-at-the-top",
                                           "index-beyond-queue",
                                           "index-half-way",
                                           "index-back"};
constexpr const char* kDoesNoHarm[] = {"indirect",
                                       "split-header",
                                       "split-data",
                                       "status-behind-data",
                                       "data-behind-header",
                                       "longest-chain",
                                       "indirect-after-header",
                                       "split-header-indirect",
                                       "head-again",
                                       "heads-of-a-broken-ring",
                                       "changed-while-read",
                                       "available-ring-changes",
                                       "kicks-before-ready",
                                       "kicks-for-nobody",
                                       "kick-storm",
                                       "reset-in-flight",
                                       "reset-without-waiting",
                                       "every-status",
                                       "bad-features",
                                       "queue-of-any-size",
                                       "queue-anywhere",
                                       "queue-registers",
                                       "register-storm",
                                       "config-window",
                                       "bar-moved",
                                       "bar-moved-often",
                                       "bar-on-ram",
                                       "bar-on-local-apic",
                                       "bar-on-the-rest",
                                       "bar-on-other-disk",
                                       "bar-on-itself",
                                       "bar-sized-in-use",
                                       "bar-decode-off",
                                       "vector-masked",
                                       "function-masked",
                                       "message-rewritten",
                                       "interrupt-storm",
                                       "interrupt-nonsense"};

class HostileDriverTest : public DiskMachineTest, public ::testing::WithParamInterface<Engine> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

// All behaviours in one boot: each ends with the device reset and used as it should be, and with
// reads of the other disk, which the same thread serves.
TEST_P(HostileDriverTest, HarmsNobodyElse) {
  TempFile image(16 * kMiB, kDirectory);
  TempFile other(4 * kMiB, kDirectory);
  image.Fill(0, PatternOf(1));
  other.Fill(0, PatternOf(2));
  const std::string before = image.Content(0, 16 * kMiB);
  DiskConfig hostile = Disk(image, CacheMode::kNone, GetParam());
  hostile.trace_latency = true;
  MachineConfig config = Config("hostile=all", {hostile, Disk(other)});
  testing::RecordingLog log;
  config.log = &log;
  const std::string output = RunWell(config);
  for (const char* name : kStopsTheDevice) {
    EXPECT_THAT(output, HasSubstr(absl::StrFormat("guest: hostile %s outcome=needs-reset", name)));
    EXPECT_THAT(output, HasSubstr(absl::StrFormat("guest: hostile %s ok\n", name)));
  }
  for (const char* name : kDoesNoHarm) {
    EXPECT_THAT(output, HasSubstr(absl::StrFormat("guest: hostile %s ok\n", name)));
  }
  EXPECT_THAT(output, HasSubstr("guest: hostile bad-features without-version-1=refused "
                                "not-offered=refused\n"));
  EXPECT_TRUE(image.Content(0, 16 * kMiB) == before);
  // Each that stops the device is worth a line; somebody who does it all day is not.
  EXPECT_GT(log.lines().size(), 0u);
  EXPECT_LE(log.lines().size(), 10u) << ::testing::PrintToString(log.lines());
}

INSTANTIATE_TEST_SUITE_P(, HostileDriverTest,
                         ::testing::Values(Engine::kIoUring, Engine::kNative, Engine::kThreads),
                         [](const auto& info) { return EngineName(info.param); });

// ---- Pulling the plug ----

TEST_F(DiskMachineTest, StoppingWithRequestsInFlightNeitherHangsNorLeaks) {
  const TempFile image(64 * kMiB, kDirectory);
  RunWell(Config("disk=1", {Disk(image)}));  // whatever is set up once
  const size_t descriptors = CountEntries("/proc/self/fd");
  const size_t threads = CountEntries("/proc/self/task");
  std::mt19937 random(7);
  constexpr Engine kEngines[] = {Engine::kIoUring, Engine::kNative, Engine::kThreads};
  for (int i = 0; i < 30; ++i) {
    const TestConsole console;
    MachineConfig config = GuestConfig(console, "records=1");
    config.disks = {Disk(image, CacheMode::kNone, kEngines[i % 3])};
    absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();  // so the last one has let go of the file
    ASSERT_TRUE((*machine)->Start().ok());
    ASSERT_TRUE(console.WaitFor("guest: durable ")) << "round " << i << "\n" << console.Output();
    absl::SleepFor(absl::Microseconds(random() % 5000));
    (*machine)->Stop();
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  EXPECT_TRUE(testing::ThreadsComeDownTo(threads));
}

}  // namespace
}  // namespace ringside
